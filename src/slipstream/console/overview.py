"""`GET /v2/overview`: what is going on and what is wrong, looked at once for everybody who wants to see it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from slipstream.api.events import Stats, TopicStats
from slipstream.api.media import EVENTS
from slipstream.api.overview import (
    Acknowledgement,
    AcknowledgementQuery,
    AcknowledgeRequest,
    DeadLetterCounts,
    History,
    Overview,
    OverviewAnswer,
    OverviewQuery,
    Part,
    StillGroup,
)
from slipstream.api.server import ServerCondition
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.attention import Attention
from slipstream.console.handled import HandledCounts
from slipstream.console.history import STEP_MS, Ring
from slipstream.console.problems import BROKER, PARTS, DeadLettersSeen, GroupSeen, Seen, Unseen, first, problems
from slipstream.console.sources import Away, Noun, Sources
from slipstream.console.watch import Watch

log = logging.getLogger(__name__)

WATCHED_MS = 1_000
"""How often the broker is looked at while somebody watches; else once for each step of the history."""

PAUSE_S_MAX = 10.0
"""Between two attempts at a broker that is away."""

LOOK_TIMEOUT_S = 10.0

FAILED = "the console failed to look; its log says why"

NOTHING = Stats(
    time_ms=0,
    interval_ms=1,
    produced_per_s=0.0,
    delivered_per_s=0.0,
    acked_per_s=0.0,
    nacked_per_s=0.0,
    dead_lettered_per_s=0.0,
    lag=0,
    in_flight=0,
    dead_letters=0,
    oldest_unfinished_age_ms=0,
    topics=[],
)


class Feed:
    """Looks at all sources, always: the broker every few seconds, the others less often."""

    def __init__(self, sources: Sources, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._sources = sources
        self._now_ms = now_ms
        self._watch = Watch()
        self._handled = HandledCounts(sources.stats)
        self._attention = Attention(sources.state)
        self._has_looked = False
        """All sources were asked at least once."""
        self._ring = Ring()
        self._stats = NOTHING
        self._groups: tuple[GroupSeen, ...] = ()
        self._dead_letters: tuple[DeadLettersSeen, ...] = ()
        self._trouble = ""
        self._conditions: tuple[ServerCondition, ...] = ()
        self._away = "it has not been asked yet"
        self._away_since_ms: int | None = None
        self._around = Seen(now_ms=0)
        """What is known of the others."""
        self._viewers = 0
        self._audience = asyncio.Event()
        """Set when the first viewer comes, or the last one leaves."""
        self._changed = asyncio.Condition()
        self._number = 0
        self._newest: Overview | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def open(self) -> None:
        await self._attention.open()
        self._watch = Watch(self._attention.still)
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._look_around())]

    def stop(self) -> None:
        """Who would listen for ever stops."""
        self._stopping = True
        self._tasks.append(asyncio.create_task(self._wake()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._save()

    async def _save(self) -> None:
        await self._attention.save(self._watch.still())

    async def acknowledge(self, key: str, by: str) -> bool:
        """Note who takes care of a problem; nobody does any more if `by` is empty. Return whether there is one."""
        acknowledgement = Acknowledgement(by=by, at_ms=self._now_ms()) if by else None
        if not self._attention.acknowledge(key, acknowledgement):
            return False
        await self._save()
        await self._tell()
        return True

    # The broker

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for stats in self._samples():
                    failures = 0
                    await self._hear(stats)
                continue
            except Away as error:
                reason = str(error)
            except Exception:
                # Whatever it is: to end here would show what was true then for ever, as if nothing had happened since.
                log.exception("%s could not be looked at", "the broker")
                reason = FAILED
            failures += 1
            self._note_away(reason)
            await self._wait(min(PAUSE_S_MAX, 0.25 * 2 ** min(failures, 10)))

    async def _samples(self) -> AsyncGenerator[Stats, None]:
        """Until it should be looked at more or less often: somebody watches, or nobody does any more."""
        self._audience.clear()
        is_first = self._newest is None  # nobody should have to wait for it
        interval_ms = WATCHED_MS if self._viewers or is_first else STEP_MS
        async with contextlib.aclosing(self._sources.stats.samples(interval_ms)) as samples:
            while not self._audience.is_set():
                following = asyncio.ensure_future(anext(samples))
                woken = asyncio.ensure_future(self._audience.wait())
                try:
                    await asyncio.wait({following, woken}, return_when=asyncio.FIRST_COMPLETED)
                    if following.done():
                        yield following.result()
                        if is_first and not self._viewers:
                            return
                finally:
                    following.cancel()
                    woken.cancel()
                    await asyncio.gather(following, woken, return_exceptions=True)

    async def _hear(self, stats: Stats) -> None:
        if self._away and self._away_since_ms is not None:
            log.info("the broker answers again")
        handled = await self._handled.count(stats)
        self._stats = stats
        self._groups, self._dead_letters = self._watch.see(stats, handled)
        self._ring.add(stats, _total(self._dead_letter_counts(stats)))
        self._away, self._away_since_ms = "", None
        self._trouble = await self._sources.stats.trouble()
        self._conditions = tuple(await self._sources.stats.conditions())
        await self._tell()

    def _note_away(self, reason: str) -> None:
        if self._away_since_ms is None:
            self._away_since_ms = self._now_ms()
            log.warning("the broker does not answer, and is asked again and again: %s", reason)
        self._away = reason

    async def _wait(self, pause_s: float) -> None:
        """Who watches sees how long it has been away."""
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            await self._tell()
            await asyncio.sleep(min(left, WATCHED_MS / 1000))

    # The others

    async def _look_around(self) -> None:
        while True:
            seen = Seen(now_ms=self._now_ms())
            for noun in self._sources.nouns:
                seen = await self._look_at(noun, seen)
                if not self._has_looked:
                    self._around = seen  # the first look may take seconds, and is better in part than late
            self._around, self._has_looked = seen, True
            await self._save()
            await asyncio.sleep(self._sources.look_ms / 1000)

    async def _look_at(self, noun: Noun, seen: Seen) -> Seen:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return await noun.look(seen)
        except Refused as refused:
            reason = refused.message
        except TimeoutError:
            reason = f"no answer within {LOOK_TIMEOUT_S:.0f} s"
        except Exception:
            log.exception("%s could not be looked at", noun.what)
            reason = FAILED
        return replace(seen, unseen=(*seen.unseen, Unseen(what=noun.what, reason=reason, link=noun.link)))

    # Telling

    async def _tell(self) -> None:
        self._newest = await self._overview()
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._number += 1
            self._changed.notify_all()

    async def _overview(self) -> Overview:
        now_ms, stats = self._now_ms(), self._stats
        parts: list[Part] = []
        unseen = self._around.unseen
        try:
            parts = await self._sources.parts.read()
        except Refused as refused:
            unseen = (*unseen, Unseen(what=PARTS, reason=refused.message, link="#/"))
        seen = replace(
            self._around,
            now_ms=now_ms,
            away=self._away,
            away_ms=0 if self._away_since_ms is None else now_ms - self._away_since_ms,
            trouble=self._trouble,
            conditions=self._conditions,
            groups=self._groups,
            dead_letters=self._dead_letters,
            has_bus_dead_letters=self._sources.bus_dead_letters is not None,
            parts=tuple(parts),
            unseen=unseen,
        )
        counts = self._dead_letter_counts(stats)
        found = problems(seen, self._sources.thresholds)
        return Overview(
            time_ms=now_ms,
            produced_per_s=0.0 if self._away else stats.produced_per_s,
            acked_per_s=0.0 if self._away else stats.acked_per_s,
            oldest_ms=stats.oldest_unfinished_age_ms,
            in_flight=stats.in_flight,
            dead_letters=_total(counts),
            lag=stats.lag,
            problems=first(self._attention.recall(found, now_ms, unseen=self._not_asked(unseen)), now_ms),
            parts=parts,
            topics=stats.topics,
            still=[
                StillGroup(topic=each.topic, group=each.group, still_ms=each.still_ms)
                for each in self._groups
                if each.still_ms >= self._sources.thresholds.standing_ms
            ],
            sources=self._sources.named,
            dead_letter_counts=counts,
        )

    def _not_asked(self, unseen: Sequence[Unseen]) -> set[str]:
        """Return the names of the sources of which nothing is known now: their problems may be there or not."""
        names = {each.what for each in unseen}
        if self._away:
            names.add(BROKER)
        if not self._has_looked:
            names |= {"", *(noun.what for noun in self._sources.nouns)}
        return names

    def _dead_letter_counts(self, stats: Stats) -> DeadLetterCounts:
        slips, jobs = self._around.slips, self._around.jobs
        messages = stats.dead_letters + sum(each.total for each in self._dead_letters if each.kept_in)
        return DeadLetterCounts(messages=messages, slips=slips.dead_letters, downloads=jobs.dead_letters)

    def topics(self) -> list[TopicStats]:
        return self._stats.topics

    def history(self) -> History:
        return self._ring.history()

    async def newest(self) -> Overview:
        """As it was told last; before anything was, once it is."""
        if self._newest is None:
            async with self._changed:
                await self._changed.wait_for(lambda: self._newest is not None or self._stopping)
        return self._newest or await self._overview()

    async def overviews(self, interval_ms: int) -> AsyncGenerator[Overview, None]:
        """The newest at once, and then whenever there is another, but not more often than that; until the end."""
        self._count_viewers(1)
        try:
            while not self._stopping:
                number, told_at = self._number, time.monotonic()
                yield await self.newest()
                # Half a look early: else every second one would be missed by a hair.
                await asyncio.sleep(max(0.0, told_at + (interval_ms - WATCHED_MS / 2) / 1000 - time.monotonic()))
                async with self._changed:
                    await self._changed.wait_for(lambda number=number: self._number != number)  # type: ignore[misc]
        finally:
            self._count_viewers(-1)

    def _count_viewers(self, change: int) -> None:
        before = self._viewers > 0
        self._viewers += change
        self._sources.metrics.watching.set(self._viewers)
        if (self._viewers > 0) != before:
            self._audience.set()


def _total(counts: DeadLetterCounts) -> int:
    return counts.messages + counts.slips + counts.downloads


class OverviewCalls:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/overview", self.show, methods=["GET"]),
            Route("/v2/acknowledgements", self.acknowledge, methods=["POST"]),
            Route("/v2/acknowledgements", self.withdraw, methods=["DELETE"]),
        ]

    async def acknowledge(self, request: Request) -> Response:
        asked = await read_json(request, AcknowledgeRequest)
        return await self._noted(asked.key, asked.by)

    async def withdraw(self, request: Request) -> Response:
        return await self._noted(read_query(request, AcknowledgementQuery).key, "")

    async def _noted(self, key: str, by: str) -> Response:
        if not await self._feed.acknowledge(key, by):
            raise Refused("NOT_FOUND", f"there is no problem {key!r:.200} now: it may be resolved; see /v2/overview")
        return Response(status_code=204)

    async def show(self, request: Request) -> Response:
        query = read_query(request, OverviewQuery)
        if EVENTS not in request.headers.get("accept", ""):
            return json_answer(OverviewAnswer(history=self._feed.history(), overview=await self._feed.newest()))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=EVENTS)  # a stream would not end, though none of it is sent
        return StreamingResponse(self._events(query.interval_ms), headers=headers, media_type=EVENTS)

    async def _events(self, interval_ms: int) -> AsyncGenerator[bytes, None]:
        yield b"retry: 1000\n\n"  # whoever is cut off comes back after a second
        yield _event(b"history", self._feed.history())
        async with contextlib.aclosing(self._feed.overviews(interval_ms)) as overviews:
            async for overview in overviews:
                yield _event(b"overview", overview)


def _event(name: bytes, value: object) -> bytes:
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
