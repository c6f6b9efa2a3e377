"""Steps that run branches in parallel and join them.

A branch is a message of its own with a slip of its own, which knows whom it belongs to. When it ends, nobody is told
but the step that waits for it, which goes on as soon as enough of its branches have succeeded, or too many have failed.
What a branch has done that comes after that is undone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from slipstream.slip import clock, hints
from slipstream.slip.advance import undo_records
from slipstream.slip.control import Deadline
from slipstream.slip.event import Envelope, Event, RoutingStep, Status, StepError, decode, encode
from slipstream.slip.hints import Parent
from slipstream.slip.identity import identity
from slipstream.slip.kit import Kit
from slipstream.slip.slip import ROUTER as ROUTER_STEP
from slipstream.slip.slip import find, given_up, run_of, settled, with_step
from slipstream.slip.topics import ROUTER
from slipstream.slip.waiting import deadline_of, longest_ms, passed_deadline, schedule_deadline, settle


class Result(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a branch."""

    changes: Any = None
    """The fields of the payload that it has changed or added; the whole payload where that is no object."""
    error: StepError | None = None
    undo: tuple[tuple[str, str], ...] = ()


_results = msgspec.json.Decoder(Result)


class Branches:
    def __init__(
        self,
        kit: Kit,
        go_on: Callable[[Event], Awaitable[None]],
        undo: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._ledger, self._reporter, self._outbox = kit.ledger, kit.reporter, kit.outbox
        self._go_on = go_on
        self._undo = undo

    async def begin(self, event: Event, step: RoutingStep) -> None:
        correlation_id = event.envelope.correlation_id
        branches = hints.decode_branches(step.attributes[hints.BRANCHES])
        deadline_ms = deadline_of(step)
        name = _forked(run_of(event), step.id)
        await self._ledger.hold(correlation_id, name, encode(event), longest_ms(event, step))
        if deadline_ms is not None:
            await schedule_deadline(self._ledger, event, step, deadline_ms)
        detail = f"{len(branches)} branches, {step.attributes.get(hints.JOIN, 'all')} wanted"
        told: list[asyncio.Future[Any]] = [
            self._reporter.tell("forked", event, step, step.started_at or clock.now(), detail=detail)
        ]
        for name, steps in branches.items():
            branch = _branch(event, step, name, steps)
            ids = tuple(one.id for one in branch.envelope.routing_slip)
            told.append(
                self._reporter.tell("planned", branch, None, clock.now(), steps=ids, parent=correlation_id, detail=name)
            )
            message_id = identity(branch.envelope.correlation_id, "branch")
            told.append(await self._outbox.send(ROUTER, branch, message_id))
        for future in told:
            await future

    async def is_orphan(self, event: Event) -> bool:
        """A branch of a message that is over."""
        parent = parent_of(event)
        return parent is not None and await self._ledger.end(parent.correlation_id, parent.run) is not None

    async def ended(self, branch: Event, error: StepError | None) -> bool:
        """Tells whoever waits for it; False if it is no branch."""
        parent = parent_of(branch)
        if parent is None:
            return False
        forked = await self._fork(parent.correlation_id, _forked(parent.run, parent.step))
        if forked is None:
            return True  # long over
        event = decode(forked)
        step = find(event, parent.step)
        assert step is not None
        undo = () if error is not None else tuple(undo_records(branch.envelope.routing_slip))
        result = Result(None if error is not None else _changes(event.payload, branch.payload), error, undo)
        name = _result_name(parent.run, parent.step, parent.branch)
        # One end a branch has, and so one result: that it is written again changes nothing.
        await self._ledger.hold(parent.correlation_id, name, msgspec.json.encode(result), longest_ms(event, step))
        await self._join(event, step)
        if error is None and not await self._is_wanted(event, parent):
            await self._undo_once(event, branch, parent)
        return True

    async def _fork(self, correlation_id: str, name: str) -> bytes | None:
        """The message as it was when it was forked: as long as it waits for branches, and the usual time after it."""
        held = await self._ledger.get_held(correlation_id, name)
        return held if held is not None else await self._ledger.get(correlation_id, name)

    async def _is_wanted(self, event: Event, parent: Parent) -> bool:
        """Unless the step went on without it, or its message is over."""
        kept = await self._ledger.outcome(event, parent.step, 0)
        if kept is None:
            return await self._ledger.end(parent.correlation_id, parent.run) is None
        step = find(kept, parent.step)
        assert step is not None
        return parent.branch in json.loads(step.attributes[hints.JOINED])

    async def _undo_once(self, event: Event, branch: Event, parent: Parent) -> None:
        if await self._undoer(event, parent.step, parent.branch, b"branch") == b"branch":
            await self._undo(branch)

    async def _undoer(self, event: Event, step_id: str, branch: str, who: bytes) -> bytes:
        """Who undoes a branch that had ended well when its message failed: whoever says so first."""
        name = f"undoer:{run_of(event)}:{step_id}:{branch}"
        return await self._ledger.claim(event.envelope.correlation_id, name, who)

    async def with_ended(self, event: Event) -> Event:
        """A message that has failed while it waited for branches: with what those that had ended have to undo."""
        for step in event.envelope.routing_slip:
            if hints.BRANCHES in step.attributes and hints.JOINED not in step.attributes:
                results = await self._results(event, step)
                joined = [name for name in sorted(results) if results[name].undo]
                mine = [name for name in joined if await self._undoer(event, step.id, name, b"parent") == b"parent"]
                undo = [record for name in mine for record in results[name].undo]
                if undo:
                    attributes = step.attributes | {hints.UNDO_BRANCHES: json.dumps(undo)}
                    event = with_step(event, replace(step, attributes=attributes))
        return event

    async def without_undone(self, event: Event) -> Event:
        """A message that comes after it has failed, with branches that were joined meanwhile: without those that are
        undone with it. Else both would be at the same, each taking the other's outcome for its own."""
        for step in event.envelope.routing_slip:
            if hints.UNDO_BRANCHES in step.attributes and hints.JOINED in step.attributes:
                results = await self._results(event, step)
                joined = [name for name in json.loads(step.attributes[hints.JOINED]) if name in results]
                mine = [name for name in joined if await self._undoer(event, step.id, name, b"late") == b"late"]
                attributes = dict(step.attributes)
                undo = [record for name in mine for record in results[name].undo]
                attributes[hints.UNDO_BRANCHES] = json.dumps(undo)
                event = with_step(event, replace(step, attributes=attributes))
        return event

    async def deadline(self, deadline: Deadline) -> None:
        forked = await self._fork(deadline.correlation_id, _forked(deadline.run, deadline.step))
        step = None if forked is None else find(event := decode(forked), deadline.step)
        if step is not None:
            results = await self._results(event, step)
            missing = sorted(hints.decode_branches(step.attributes[hints.BRANCHES]).keys() - results.keys())
            await self._settle(event, step, results, passed_deadline(step, f"not done in time: {', '.join(missing)}"))

    async def _results(self, event: Event, step: RoutingStep) -> dict[str, Result]:
        prefix = _result_name(run_of(event), step.id, "")
        facts = await self._ledger.facts(event.envelope.correlation_id, prefix)
        facts |= await self._ledger.held(event.envelope.correlation_id, prefix)
        return {name: _results.decode(value) for name, value in facts.items()}

    async def _join(self, event: Event, step: RoutingStep) -> None:
        results = await self._results(event, step)
        count = len(hints.decode_branches(step.attributes[hints.BRANCHES]))
        wanted = _wanted(step.attributes.get(hints.JOIN, "all"), count)
        failed = {name: result.error for name, result in results.items() if result.error is not None}
        if len(results) - len(failed) >= wanted:
            await self._settle(event, step, results, settled(step, Status.OK, clock.now()))
        elif len(failed) > count - wanted:
            reasons = "; ".join(f"{name}: {error.message or error.code}" for name, error in sorted(failed.items()))
            error = StepError("join_failed", f"{len(failed)} of {count} branches failed: {reasons}")
            await self._settle(event, step, results, given_up(step, clock.now(), error))

    async def _settle(self, event: Event, step: RoutingStep, results: dict[str, Result], after: RoutingStep) -> None:
        joined = sorted(name for name, result in results.items() if result.error is None)
        undo = [record for name in joined for record in results[name].undo]
        attributes = after.attributes | {hints.JOINED: json.dumps(joined)}
        if undo:
            attributes[hints.UNDO_BRANCHES] = json.dumps(undo)
        payload = event.payload
        if isinstance(payload, dict):
            parts: dict[str, Any] = {name: results[name].changes for name in joined}
            errors = {name: result.error for name, result in results.items() if result.error is not None}
            payload = {**payload, step.id: {"results": parts, "errors": msgspec.to_builtins(errors)}}
        changed = with_step(replace(event, payload=payload), replace(after, attributes=attributes))
        await settle(self._ledger, self._reporter, changed, step, self._go_on)
        await self._let_go(event, step, results)

    async def _let_go(self, event: Event, step: RoutingStep, results: dict[str, Result]) -> None:
        """Nobody waits any more. Branches that come later are still to know what they were part of, for a while."""
        correlation_id, run = event.envelope.correlation_id, run_of(event)
        await self._ledger.put(correlation_id, _forked(run, step.id), encode(event))
        for branch, result in results.items():
            name = _result_name(run, step.id, branch)
            await self._ledger.put(correlation_id, name, msgspec.json.encode(result))
        names = [
            _result_name(run, step.id, branch) for branch in hints.decode_branches(step.attributes[hints.BRANCHES])
        ]
        await self._ledger.let_go(correlation_id, _forked(run, step.id), *names)


def parent_of(event: Event) -> Parent | None:
    steps = event.envelope.routing_slip
    text = steps[0].attributes.get(hints.PARENT) if steps else None
    return None if text is None else hints.decode_parent(text)


def _branch(event: Event, step: RoutingStep, name: str, steps: tuple[RoutingStep, ...]) -> Event:
    envelope, now = event.envelope, clock.now()
    parent = Parent(envelope.correlation_id, run_of(event), step.id, name)
    first = RoutingStep(
        ROUTER_STEP,
        Status.OK,
        started_at=now,
        ended_at=now,
        attributes={hints.PARENT: msgspec.json.encode(parent).decode()},
    )
    correlation_id = branch_id(envelope.correlation_id, step.id, name, run_of(event))
    return replace(
        event,
        envelope=Envelope(
            "1",
            envelope.source,
            correlation_id,
            trace_id=envelope.trace_id,
            timeout_at=envelope.timeout_at,
            routing_slip=(first, *steps),
        ),
    )


def branch_id(correlation_id: str, step: str, branch: str, run: int) -> str:
    """The correlationId of a branch of a message."""
    return f"{correlation_id}/{step}/{branch}" + (f"#{run}" if run else "")


def _changes(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def _wanted(join: str, count: int) -> int:
    return {"all": count, "any": 1}.get(join) or int(join)


def _forked(run: int, step_id: str) -> str:
    return f"forked:{run}:{step_id}"


def _result_name(run: int, step_id: str, branch: str) -> str:
    return f"branch:{run}:{step_id}:{branch}"
