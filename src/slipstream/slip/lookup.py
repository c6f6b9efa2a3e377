"""Finds all that a store keeps of a slip and of its branches, for `timeline`. Nothing is changed by looking."""

from __future__ import annotations

from slipstream.slip import hints
from slipstream.slip.branches import branch_id
from slipstream.slip.event import Envelope, Event
from slipstream.slip.ledger import Ledger
from slipstream.slip.progress import Progress, decode_progress
from slipstream.slip.store import Store
from slipstream.slip.timeline import Known


async def look_up(store: Store, correlation_id: str) -> Known | None:
    """None if nothing is kept of it."""
    known = await _look_up(store, correlation_id, "", None)
    return known if known.told or known.newest else None


async def _look_up(store: Store, correlation_id: str, branch: str, planned: Event | None) -> Known:
    told = tuple(decode_progress(data) for data in await store.history(correlation_id))
    newest: dict[int, Event] = {} if planned is None else {0: planned}
    newest |= await Ledger(store, ttl_ms=1).latest_of_runs(correlation_id)  # it writes nothing that could expire
    branches = {
        (one.step, one.run): await _look_up_branches(store, one, newest.get(one.run))
        for one in told
        if one.kind == "forked"
    }
    return Known(correlation_id=correlation_id, told=told, newest=newest, branches=branches, branch=branch)


async def _look_up_branches(store: Store, forked: Progress, event: Event | None) -> tuple[Known, ...]:
    """The slip of the parent knows which there are, and what they were to do."""
    steps = event.envelope.routing_slip if event is not None else ()
    text = next((step.attributes.get(hints.BRANCHES) for step in steps if step.id == forked.step), None)
    if event is None or text is None:
        return ()
    found: list[Known] = []
    for name, planned in hints.decode_branches(text).items():
        correlation_id = branch_id(forked.correlation_id, forked.step, name, forked.run)
        envelope = Envelope("1", event.envelope.source, correlation_id, routing_slip=planned)
        known = await _look_up(store, correlation_id, name, Event(envelope, event.type))
        if known.told:
            found.append(known)
    return tuple(found)
