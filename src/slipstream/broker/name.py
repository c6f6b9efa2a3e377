"""Names of topics, groups, owners and writers (ruling 15)."""

from __future__ import annotations

import re

from slipstream.broker.errors import InvalidArgument

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")


def check_name(what: str, name: str) -> None:
    if not _NAME.match(name):
        raise InvalidArgument(f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : - (got {name[:40]!r})")
