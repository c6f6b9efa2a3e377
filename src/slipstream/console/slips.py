"""Slips: where messages are on their itineraries, and what a person says to them, through the store they share."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.overview import SearchHit
from slipstream.api.slips import (
    CancellationRequest,
    CancellationTaken,
    PauseRequest,
    RerunRequest,
    RerunTaken,
    SignalRequest,
    SignalTaken,
    SlipList,
    SlipQuery,
    SlipSummary,
    StepInfo,
    StepList,
)
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.problems import PausedStep, Seen, SlipSeen, SlipsSeen, UnservedTopic
from slipstream.console.sources import Noun
from slipstream.slip import Event, InvalidSlip, Signal, SlipSettings, clock
from slipstream.slip.oversight import (
    DoesNotFit,
    Listed,
    NotKnown,
    Oversight,
    StoreMissing,
    existing_store,
)
from slipstream.slip.standing import Standing
from slipstream.slip.store import StoreUnavailable, UnusableStore
from slipstream.slip.timeline import Timeline

LOOKED_AT = 50
"""Of slips that wait or are stuck, when it is counted how many there are."""

SEEN_LATELY = 1_000
HITS = 10

_JOB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class Slips(Noun):
    """The store is opened when it is first needed: it may be made after the console is started."""

    what = "slips"
    link = "#/slips"

    def __init__(self, settings: SlipSettings, *, is_expected: Callable[[], bool]) -> None:
        self._settings = settings
        self._is_expected = is_expected
        """Returns whether it is a problem if there is no store."""
        self._opened: Oversight | None = None
        self._opening = asyncio.Lock()
        self._closing = contextlib.AsyncExitStack()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/slips", self.list_slips, methods=["GET"]),
            # Of branches, a correlationId has slashes in it.
            Route("/v2/slips/{slip:path}/signals", self.signal, methods=["POST"]),
            Route("/v2/slips/{slip:path}/reruns", self.rerun, methods=["POST"]),
            Route("/v2/slips/{slip:path}/cancellation", self.cancel, methods=["POST"]),
            Route("/v2/slips/{slip:path}", self.show, methods=["GET"]),
            Route("/v2/steps", self.list_steps, methods=["GET"]),
            Route("/v2/steps/{step:path}/pause", self.pause, methods=["PUT"]),
            Route("/v2/steps/{step:path}/pause", self.resume, methods=["DELETE"]),
        ]

    async def close(self) -> None:
        await self._closing.aclose()

    # Looking

    async def list_slips(self, request: Request) -> Response:
        query = read_query(request, SlipQuery)
        async with self._oversight() as slips:
            page = await slips.slips(
                query.state, limit=query.limit, branches=query.branches, search=query.search, of_type=query.type
            )
        return json_answer(SlipList([_summary(each) for each in page.slips], page.more, page.types))

    async def show(self, request: Request) -> Response:
        correlation_id = request.path_params["slip"]
        async with self._oversight() as slips:
            timeline = await slips.timeline(correlation_id)
            newest = await slips.newest(correlation_id)
            inside = [await slips.newest(each) for each in _branches(timeline)]
        shown: dict[str, Any] = msgspec.to_builtins(timeline)
        shown["payload"] = None if newest is None else newest.payload
        shown["envelope"] = None if newest is None else msgspec.to_builtins(newest.envelope)
        shown["jobs"] = list(dict.fromkeys(job for event in (newest, *inside) if event for job in jobs_of(event)))
        return json_answer(shown)

    async def look(self, seen: Seen) -> Seen:
        if self._opened is None and not await asyncio.to_thread(self._is_expected):
            try:
                await self._open()
            except (StoreMissing, InvalidSlip):
                return seen
        async with self._oversight() as slips:
            stuck = await slips.slips("stuck", limit=LOOKED_AT)
            waiting = await slips.slips("waiting", limit=LOOKED_AT)
            failed = await slips.slips("dead-lettered", limit=LOOKED_AT)
            dead_letters = await slips.count_dead_letters()
            held = await slips.pauses()
            unserved = await slips.unserved()
        now_ms = clock.now_ms()
        return replace(
            seen,
            slips=SlipsSeen(
                # What waits at a paused step is told of with the step.
                stuck=tuple(_seen(each, now_ms) for each in stuck.slips if each.timeline.standing.going != "paused"),
                more_stuck=stuck.more,
                waiting=tuple(sorted((_seen(each, now_ms) for each in waiting.slips), key=lambda each: -each.for_ms)),
                more_waiting=waiting.more,
                failed=tuple(_seen(each, now_ms) for each in failed.slips),
                more_failed=failed.more,
                dead_letters=dead_letters,
            ),
            paused_steps=tuple(
                PausedStep(
                    step=step,
                    reason=hold.reason,
                    left_ms=None if hold.until_ms is None else max(0, hold.until_ms - now_ms),
                )
                for step, hold in held.items()
            ),
            unserved_topics=tuple(
                UnservedTopic(topic=topic, step=each.step, for_ms=max(0, now_ms - each.since_ms))
                for topic, each in unserved.items()
            ),
        )

    async def search(self, text: str) -> list[SearchHit]:
        async with self._oversight() as slips:
            exact = await slips.find(text)
            others = [each.slip for each in await slips.store.tracked(limit=SEEN_LATELY) if text in each.slip]
            steps = [step for step in await self._steps(slips) if text in step]
        found = ([text] if exact is not None else []) + others
        return [
            *(_hit("slip", slip, f"#/slips/{quote(slip, safe='')}") for slip in list(dict.fromkeys(found))[:HITS]),
            *(_hit("step", step, "#/slips?" + f"search={quote(step, safe='')}") for step in steps[:HITS]),
        ]

    # One message

    async def signal(self, request: Request) -> Response:
        asked = await read_json(request, SignalRequest)
        slip = request.path_params["slip"]
        word = Signal(slip, asked.step, asked.decision, asked.by, asked.note, asked.data)
        async with self._oversight() as slips:
            waits = await slips.signal(word)
        taken = SignalTaken(correlation_id=slip, step=asked.step, decision=asked.decision, waits=waits)
        return json_answer(taken, 202)

    async def rerun(self, request: Request) -> Response:
        asked = await read_json(request, RerunRequest)
        slip = request.path_params["slip"]
        async with self._oversight() as slips:
            before = await slips.rerun(slip, asked.step)
        return json_answer(RerunTaken(correlation_id=slip, step=asked.step, run=before.runs[-1].number + 1), 202)

    async def cancel(self, request: Request) -> Response:
        asked = await read_json(request, CancellationRequest)
        slip = request.path_params["slip"]
        async with self._oversight() as slips:
            await slips.cancel(slip, asked.reason)
        return json_answer(CancellationTaken(correlation_id=slip), 202)

    # A step for all messages

    async def list_steps(self, request: Request) -> Response:
        async with self._oversight() as slips:
            held = await slips.pauses()
            steps = await self._steps(slips)
        paused = [_step(step, hold) for step, hold in held.items()]
        return json_answer(StepList([*paused, *(_step(step, None) for step in steps if step not in held)]))

    async def pause(self, request: Request) -> Response:
        asked = await read_json(request, PauseRequest)
        step = request.path_params["step"]
        async with self._oversight() as slips:
            held = await slips.pause(step, asked.reason, seconds=asked.seconds)
        return json_answer(_step(step, held))

    async def resume(self, request: Request) -> Response:
        step = request.path_params["step"]
        async with self._oversight() as slips:
            await slips.resume(step)
        return json_answer(_step(step, None))

    async def _steps(self, slips: Oversight) -> list[str]:
        """At which a message was seen lately."""
        return sorted({each.step for each in await slips.store.tracked(limit=SEEN_LATELY) if each.step})

    # The store

    @contextlib.asynccontextmanager
    async def _oversight(self) -> AsyncIterator[Oversight]:
        """With what goes wrong as an answer."""
        try:
            yield await self._open()
        except NotKnown as error:
            raise Refused("NOT_FOUND", str(error)) from error
        except DoesNotFit as error:
            raise Refused("FAILED_PRECONDITION", str(error)) from error
        except StoreMissing as error:
            where = self._settings.store.removeprefix("sqlite://")
            message = f"there is no store of slips at {where} yet: a router makes it; name it with SLIP_STORE"
            raise Refused("UNAVAILABLE", message, retry_after_s=1) from error
        except (StoreUnavailable, UnusableStore) as error:
            raise Refused("UNAVAILABLE", str(error), retry_after_s=1) from error
        except InvalidSlip as error:
            raise Refused("INVALID_ARGUMENT", str(error)) from error

    async def _open(self) -> Oversight:
        async with self._opening:
            if self._opened is None:
                store = await self._closing.enter_async_context(existing_store(self._settings.store))
                self._opened = Oversight(store, self._settings)
        return self._opened


def _summary(each: Listed) -> SlipSummary:
    standing = each.timeline.standing
    return SlipSummary(
        correlation_id=each.tracked.slip,
        type=each.tracked.kind,
        state=each.timeline.state,
        step=standing.step,
        going=standing.going,
        reason=_reason(standing),
        begun_ms=each.tracked.begun_ms,
        moved_ms=each.tracked.moved_ms,
        ended=each.tracked.ended,
    )


def _reason(standing: Standing) -> str:
    if standing.error is None:
        return standing.reason
    return f"{standing.error.code}: {standing.error.message}" if standing.error.message else standing.error.code


def _seen(each: Listed, now_ms: int) -> SlipSeen:
    standing = each.timeline.standing
    since_ms = each.tracked.moved_ms if standing.since is None else round(standing.since.timestamp() * 1000)
    return SlipSeen(
        correlation_id=each.tracked.slip,
        step=standing.step,
        going=_reason(standing) or standing.going,
        for_ms=max(0, now_ms - since_ms),
        at_ms=since_ms,
    )


def _step(step: str, held: Any) -> StepInfo:
    if held is None:
        return StepInfo(step=step, paused=False)
    return StepInfo(step=step, paused=True, reason=held.reason, until_ms=held.until_ms)


def _hit(kind: Any, text: str, link: str) -> SearchHit:
    return SearchHit(kind=kind, text=text, link=link)


def _branches(timeline: Timeline) -> Iterator[str]:
    for run in timeline.runs:
        for row in run.rows:
            for branch in row.branches:
                yield branch.correlation_id
                yield from _branches(branch)


def jobs_of(event: Event) -> Iterator[str]:
    """Ids of jobs that its steps have noted, or put into the payload, under a name that says so: `job`, `jobId`."""
    yield from _jobs_in(event.payload)
    for step in event.envelope.routing_slip:
        with contextlib.suppress(msgspec.DecodeError):  # notes are text, and some of it is JSON
            yield from _jobs_in(msgspec.json.decode(step.notes or "null"))


def _jobs_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if re.sub(r"[^a-z]", "", str(name).lower()) in {"job", "jobid", "jobids", "jobs"}:
                yield from (each for each in (inner if isinstance(inner, list) else [inner]) if _is_job(each))
            yield from _jobs_in(inner)
    elif isinstance(value, list):
        for each in value:
            yield from _jobs_in(each)


def _is_job(value: Any) -> bool:
    return isinstance(value, str) and _JOB_ID.fullmatch(value) is not None
