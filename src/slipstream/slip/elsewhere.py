"""Steps that are done by services which know the slip and not our store: the router writes down and tells for them what
a worker of ours does by itself, so that their messages can be seen, timed out, undone and run again like all others.
"""

from __future__ import annotations

import datetime as dt

from slipstream.bus import Message
from slipstream.slip import hints
from slipstream.slip.event import Event, RoutingStep, Status
from slipstream.slip.ledger import Ledger
from slipstream.slip.progress import Kind, Reporter, duration_ms
from slipstream.slip.slip import find, last_done, may_retry, outcome_name
from slipstream.slip.topics import ROUTER


def comes_from_elsewhere(event: Event, message: Message) -> bool:
    return message.topic == ROUTER and message.attributes.get("outcome") != outcome_name(event)


async def note(event: Event, ledger: Ledger, reporter: Reporter, max_attempts: int) -> Event:
    """Returns what counts: the first to come with an outcome is right, here as well."""
    step = last_done(event)
    if step is None:
        return event
    kept = await ledger.settle(event, step.id, step.attempt or 0)
    ended = find(kept, step.id)
    assert ended is not None
    at = ended.ended_at or dt.datetime.now(dt.UTC)
    took = duration_ms(ended.started_at, at)
    detail = ended.notes or "" if ended.status is Status.SKIP else ""
    await reporter.tell(_kind(ended, max_attempts), kept, ended, at, duration_ms=took, error=ended.error, detail=detail)
    return kept


def _kind(step: RoutingStep, max_attempts: int) -> Kind:
    undoes = hints.UNDOES in step.attributes
    if step.status is Status.OK:
        return "compensated" if undoes else "finished"
    if step.status is Status.SKIP:
        return "skipped"
    if may_retry(step, max_attempts):
        return "retried"
    return "compensation-failed" if undoes else "failed"
