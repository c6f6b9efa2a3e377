"""What people do with slips: decide, pause, run again. All of it goes through the store, so that it can be done from
wherever the store can be reached, also where the bus is inside another process."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.slip import clock, hints
from slipstream.slip.dead_letter import DeadLetter, event_of
from slipstream.slip.errors import InvalidSlip, NothingKept, RunAgain
from slipstream.slip.event import Event, RoutingStep, Status, decode
from slipstream.slip.identity import identity
from slipstream.slip.known_types import check_type
from slipstream.slip.ledger import End, Held, Ledger, Outcome
from slipstream.slip.routes.duration import seconds as in_seconds
from slipstream.slip.settings import SlipSettings, load_settings
from slipstream.slip.slip import DONE, UNDO_ID, find, is_undoing, run_of, with_slip
from slipstream.slip.store import Store, Timer

LEFT_BY_WORK = {hints.UNDO, hints.UNDO_BRANCHES, hints.JOINED, hints.NOT_BEFORE, hints.DELIVERED, hints.REDO}

QUEUE = "router"
"""Whose timers these are."""


class Signal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag="signal"):
    """A word to a step that waits: a decision, or whatever it waits for."""

    correlation_id: str
    step: str
    decision: Literal["approve", "deny"] = "approve"
    by: str = ""
    note: str = ""
    data: Any = None


class TimedOut(msgspec.Struct, frozen=True, rename="camel", tag="timeout"):
    """The time of a message is over."""

    correlation_id: str
    run: int


class Deadline(msgspec.Struct, frozen=True, rename="camel", tag="deadline"):
    """A step has waited for as long as it may."""

    correlation_id: str
    step: str
    run: int


class Cancel(msgspec.Struct, frozen=True, rename="camel", tag="cancel"):
    """Somebody ends a message."""

    correlation_id: str
    run: int
    reason: str


class Begin(msgspec.Struct, frozen=True, rename="camel", tag="begin"):
    """An event is to be routed: a new one, or one that was made from the history of another."""

    event: Event


Errand: TypeAlias = Signal | TimedOut | Deadline | Cancel | Begin
"""What a timer of the router is about."""

decode_errand = msgspec.json.Decoder(Errand).decode


def errand_timer(timer_id: str, due_ms: int, errand: Errand) -> Timer:
    return Timer(timer_id, due_ms, msgspec.json.encode(errand))


class Control:
    """For the command line, the console and applications.

    Example:
        async with open_store("slipstream-data/slips.db") as store:
            await Control(store).approve("c-123", "manager", by="ada")
    """

    def __init__(self, store: Store, settings: SlipSettings | None = None) -> None:
        self._settings = settings or load_settings({})
        self._store = store
        self._ledger = Ledger(store, self._settings.ttl_ms)

    async def approve(self, correlation_id: str, step: str, *, by: str = "", note: str = "", data: Any = None) -> None:
        await self.signal(Signal(correlation_id, step, "approve", by, note, data))

    async def deny(self, correlation_id: str, step: str, *, by: str = "", note: str = "") -> None:
        await self.signal(Signal(correlation_id, step, "deny", by, note))

    async def signal(self, signal: Signal) -> None:
        """Also before the message has come to the step, which then goes on at once. The first word counts."""
        _check(signal)
        timer_id = f"signal:{signal.correlation_id}:{signal.step}:{secrets.token_hex(8)}"
        await self._store.schedule(QUEUE, errand_timer(timer_id, clock.now_ms(), signal))

    async def submit(self, event: Event) -> None:
        """Submit an event through the store; a router takes it when it next looks.

        Raises InvalidSlip if routers are at work, none has a route for its type, and it brings no routing slip of its
        own."""
        if not event.envelope.routing_slip:
            await check_type(self._store, event.type)
        timer_id = f"submit:{event.envelope.correlation_id}:{secrets.token_hex(8)}"
        await self._store.schedule(QUEUE, errand_timer(timer_id, clock.now_ms(), Begin(event)))

    async def cancel(self, correlation_id: str, reason: str = "") -> None:
        """What remains is skipped, what is done is undone, and it is a dead letter; a step that is at work finishes
        first."""
        outcomes = await self._ledger.outcomes(correlation_id)
        if not outcomes:
            raise InvalidSlip(f"nothing is kept of {correlation_id}: it is not known here, or too old")
        run = max(outcome.run for outcome in outcomes)
        if await self._ledger.end(correlation_id, run) is not None:
            raise InvalidSlip(f"{correlation_id} is over already")
        errand = Cancel(correlation_id, run, reason)
        await self._store.schedule(QUEUE, errand_timer(f"cancel:{correlation_id}:{run}", clock.now_ms(), errand))

    # A step for all messages

    async def pause(self, step: str, reason: str = "", *, seconds: float | None = None) -> None:
        """Nobody works at the step, and its messages wait, until it is resumed, or for so long. It costs no attempt."""
        if not step:
            raise InvalidSlip("which step is to be paused? Give its id")
        until_ms = None
        if seconds is not None:
            # No time at all is a pause that is over, and takes the place of one that is not.
            until_ms = clock.now_ms() + (round(in_seconds("seconds", seconds) * 1000) if seconds else 0)
        await self._ledger.pause(step, Held(reason, until_ms))

    async def resume(self, step: str) -> None:
        await self._ledger.resume(step)

    async def pauses(self) -> dict[str, Held]:
        return await self._ledger.pauses()

    # Again

    async def rerun(self, correlation_id: str, step: str, *, after_run: int | None = None) -> None:
        """From this step on, with the payload as it was when the message came there. It may be over, or stuck. With
        `after_run`, only if that is its newest run: what is said twice is then done once. Raises RunAgain."""
        before, outcomes = await self._before(correlation_id, step, after_run)
        _check_not_undone(outcomes, step, before)
        run = max(outcome.run for outcome in outcomes) + 1
        await self._run_again(before, step, run, _undone_times(outcomes))

    async def rerun_letter(self, letter: DeadLetter, step: str, *, after_run: int) -> None:
        """The same of a message of which nothing is kept but its dead letter, with the payload that it had when it
        failed. Raises RunAgain where something is kept after all, of a later run."""
        event = event_of(letter)
        if event is None:
            raise InvalidSlip("this dead letter is of something that was no event: it has no steps")
        correlation_id = event.envelope.correlation_id
        _check_newest(correlation_id, await self._ledger.outcomes(correlation_id), after_run)
        at = find(event, step)
        if at is None or any(one.status not in DONE for one in _until(event, step)):
            raise InvalidSlip(f"{correlation_id} has not come to {step}")
        undoing = [one for one in event.envelope.routing_slip if hints.UNDOES in one.attributes]
        undone = Counter(one.attributes[hints.UNDOES] for one in undoing if one.status is Status.OK)
        if behind := [one.id for one in _until(event, step) if one.id in undone]:
            raise InvalidSlip(f"{', '.join(behind)} had been undone: run it again from {behind[0]}, or from before it")
        # Or the router would take the run before for one that is under way, and end it.
        await self._ledger.claim_end(correlation_id, after_run, End("failed", "dead letter"))
        await self._ledger.end_told(correlation_id, after_run)
        await self._run_again(event, step, after_run + 1, undone)

    async def _run_again(self, before: Event, step: str, run: int, undone_times: Counter[str]) -> None:
        steps = [_redone(_again(one), undone_times) for one in _from(before, step)]
        event = with_slip(before, [*_marked(_until(before, step), {hints.RUN: str(run)}), *steps])
        event = replace(event, envelope=replace(event.envelope, timeout_at=None))
        correlation_id = event.envelope.correlation_id
        await self._ledger.remove(correlation_id, *(f"signal:{one.id}" for one in steps))
        await self._begin(event)

    async def copy(
        self, correlation_id: str, step: str, *, payload: Any = msgspec.UNSET, correlation_id_of_copy: str = ""
    ) -> str:
        """A message of its own, from this step on, with a payload of its own if one is given. Returns its
        correlationId."""
        before, outcomes = await self._before(correlation_id, step)
        _check_not_undone(outcomes, step, before)
        copied = correlation_id_of_copy or f"{correlation_id}~{secrets.token_hex(4)}"
        if await self._ledger.outcomes(copied):
            raise InvalidSlip(f"there is a message {copied} already")
        steps = [_again(one) for one in _from(before, step)]
        behind = [_without_original(one) for one in _until(before, step)]
        event = with_slip(before, [*_marked(behind, {hints.COPY_OF: correlation_id}), *steps])
        event = replace(event, envelope=replace(event.envelope, timeout_at=None, correlation_id=copied))
        if payload is not msgspec.UNSET:
            _check_json("payload", payload)
            event = replace(event, payload=payload)
        await self._begin(event)
        return copied

    async def _begin(self, event: Event) -> None:
        timer_id = identity("begin", event.envelope.correlation_id, run_of(event))
        await self._store.schedule(QUEUE, errand_timer(timer_id, clock.now_ms(), Begin(event)))

    async def _before(
        self, correlation_id: str, step: str, after_run: int | None = None
    ) -> tuple[Event, list[Outcome]]:
        """The newest event in which all before the step is done, and the step is not."""
        outcomes = await self._ledger.outcomes(correlation_id)
        if not outcomes:
            raise NothingKept(f"nothing is kept of {correlation_id}: it is not known here, or too old")
        if after_run is not None:
            _check_newest(correlation_id, outcomes, after_run)
        skipped = _skipped(outcomes)
        found: Event | None = None
        for outcome in outcomes:
            event = decode(outcome.event)
            at = find(event, step)
            if at is None or hints.UNDOES in at.attributes:
                continue
            behind = [skipped.get((outcome.run, one.id), one) for one in _until(event, step)]
            untouched = at.status is Status.PENDING and not at.attempt
            if untouched and all(one.status in DONE for one in behind):
                found = with_slip(event, [*behind, *event.envelope.routing_slip[len(behind) :]])
        if found is None:
            known = {one.id for outcome in outcomes for one in decode(outcome.event).envelope.routing_slip}
            if step in known:
                raise InvalidSlip(f"{correlation_id} has not come to {step}, or what it was then is not kept any more")
            raise InvalidSlip(f"{correlation_id} has no step {step}; there are {', '.join(sorted(known))}")
        return found, outcomes


def _check_newest(correlation_id: str, outcomes: list[Outcome], run: int) -> None:
    newest = max((outcome.run for outcome in outcomes), default=run)
    if newest > run:
        raise RunAgain(f"{correlation_id} was run again meanwhile: run {newest} is its newest, and not {run}")


def _check(signal: Signal) -> None:
    """What the router could not read would wait there for ever, tried again and again."""
    _check_json("data", signal.data)
    try:
        msgspec.convert(msgspec.to_builtins(signal), Signal)
    except msgspec.ValidationError as error:
        raise InvalidSlip(f"this is no word for a step that waits: {error}") from error
    if not signal.correlation_id or not signal.step:
        raise InvalidSlip("a word is for one step of one message: give its correlationId, and the id of the step")


def _check_json(name: str, value: object) -> None:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSlip(f"{name} cannot be kept as JSON: {error}") from error


def _again(step: RoutingStep) -> RoutingStep:
    """As if it had never begun."""
    attributes = {name: value for name, value in step.attributes.items() if name not in LEFT_BY_WORK}
    return RoutingStep(
        step.id,
        Status.PENDING,
        v=step.v,
        max_attempts=step.max_attempts,
        next_topic=step.next_topic,
        attributes=attributes,
    )


def _until(event: Event, step: str) -> list[RoutingStep]:
    steps = event.envelope.routing_slip
    return list(steps[: next(index for index, one in enumerate(steps) if one.id == step)])


def _from(event: Event, step: str) -> list[RoutingStep]:
    steps = event.envelope.routing_slip[len(_until(event, step)) :]
    return [one for one in steps if hints.UNDOES not in one.attributes]


def _skipped(outcomes: list[Outcome]) -> dict[tuple[int, str], RoutingStep]:
    """By run. What the router skips is no outcome of its own: it shows in that of the step after it."""
    slips = [(outcome.run, decode(outcome.event).envelope.routing_slip) for outcome in outcomes]
    # Of a message that is undone, all that it never came to is skipped.
    steps = [(run, step) for run, slip in slips if not is_undoing(slip) for step in slip]
    return {(run, step.id): step for run, step in steps if step.status is Status.SKIP}


def _check_not_undone(outcomes: list[Outcome], step: str, before: Event) -> None:
    if undone := _undone(outcomes, step, before):
        raise InvalidSlip(f"{', '.join(undone)} had been undone: run it again from {undone[0]}, or from before it")


def _without_original(step: RoutingStep) -> RoutingStep:
    """What the original has done is its own to undo, and its runs and the message it is a branch of are its own."""
    own = {hints.UNDO, hints.UNDO_BRANCHES, hints.RUN, hints.PARENT}
    return replace(step, attributes={name: value for name, value in step.attributes.items() if name not in own})


def _undone(outcomes: list[Outcome], step: str, before: Event) -> list[str]:
    """Of what lies behind the step: that which was undone after it was last done."""
    last_run: dict[str, int] = {}
    undone_in: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.step.startswith(UNDO_ID):
            undone_in[outcome.step.removeprefix(UNDO_ID).partition("#")[0]] = outcome.run
        else:
            last_run[outcome.step] = outcome.run
    behind = [one.id for one in _until(before, step)]
    return [one for one in behind if one in undone_in and undone_in[one] >= last_run.get(one, 0)]


def _undone_times(outcomes: list[Outcome]) -> Counter[str]:
    """How often each step was undone."""
    undoing = [(outcome.step, decode(outcome.event)) for outcome in outcomes if outcome.step.startswith(UNDO_ID)]
    found = [find(event, step) for step, event in undoing]
    return Counter(one.attributes[hints.UNDOES] for one in found if one is not None and one.status is Status.OK)


def _redone(step: RoutingStep, undone_times: Counter[str]) -> RoutingStep:
    times = undone_times[step.id]
    return replace(step, attributes=step.attributes | {hints.REDO: str(times)}) if times else step


def _marked(steps: list[RoutingStep], marks: dict[str, str]) -> list[RoutingStep]:
    if not steps:
        return steps
    return [replace(steps[0], attributes=steps[0].attributes | marks), *steps[1:]]
