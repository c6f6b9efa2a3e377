"""What a worker tells in a JobLog, beyond its text: which step of which task it was, and what came of it.

The fields of a log are text. Those here are what the ledger adds up, so both sides read this page only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from slipstream.jobs.ledger.snapshot import Rank
from slipstream.jobs.messages import NAME_CHARS_MAX, DownloadTask, JobLog

STEP = "step"
TENANT = "tenant"
"""In every log of a task that has one: who adds logs up by tenant has nothing else to go by."""
STARTED, DOWNLOADED, STORED, RETRY, FAILED = "started", "downloaded", "stored", "retry", "failed"
PROGRESS = "progress"
"""The step of a report about a job's downloads under way. It is about no single resource, and the ledger keeps none."""

NUMBER_MAX = 2**53
"""Maximum of a number that is taken from a log: the ledger has room for a sum of two, and every reader of JSON too."""

_USERINFO = re.compile(r"\A([A-Za-z]+://)[^/?#]*@")
"""A password in a URL is for the server it is of, and for no log."""

_RANKS = {STARTED: Rank.IN_PROGRESS, FAILED: Rank.FAILED, STORED: Rank.COMPLETED}


class Told(msgspec.Struct, frozen=True, gc=False):
    """A log, as far as the ledger cares."""

    job_id: str
    resource_id: str
    rank: Rank
    offset: int
    at_ms: int
    fields: Mapping[str, str]
    message: str


def told(log: JobLog, offset: int) -> Told | None:
    """None for a log from which the ledger learns nothing: a step in between, or somebody's own words, or of a name
    that no task can have."""
    rank = _RANKS.get(log.fields.get(STEP, ""))
    if rank is None or not all(0 < len(name) <= NAME_CHARS_MAX for name in (log.job_id, log.resource_id)):
        return None
    at_ms = min(log.timestamp_ms, NUMBER_MAX)
    return Told(log.job_id, log.resource_id, rank, offset, at_ms, log.fields, log.message)


def number_in(fields: Mapping[str, str], name: str) -> int:
    """Return a field's value, at most NUMBER_MAX; 0 for text that is no number."""
    text = fields.get(name)
    return min(int(text), NUMBER_MAX) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0


def started_fields(task: DownloadTask) -> dict[str, str]:
    """What the ledger cannot know of a job that did not come by the ingress."""
    url = _USERINFO.sub(r"\1", task.url, count=1)
    return {"job_type": task.job_type, "tenant": task.tenant, "manifest_key": task.manifest_key, "url": url}
