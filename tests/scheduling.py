"""How xdist distributes the tests: a group in a row on one worker, and so every module that is in no group."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling


class ModulesAndGroups(LoadGroupScheduling):
    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)  # the id itself where there is no group
        return group if group != nodeid else nodeid.split("::", 1)[0]
