"""The overview: looked at once for everybody, and going on whatever is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.routing import BaseRoute

from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.history import STEP_MS
from slipstream.console.overview import WATCHED_MS, Feed
from slipstream.console.parts import PartsFile
from slipstream.console.problems import PausedStep, Seen
from slipstream.console.sources import Away, LogRecord, Noun, TopicLog
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, events, group, listening, stats, topic


@contextlib.asynccontextmanager
async def showing(numbers: Numbers, **given: Any) -> AsyncIterator[str]:
    console = create_console(Sources(numbers, **given))
    await console.open()
    try:
        async with listening(console) as url:
            yield url
            console.stop()
    finally:
        await console.close()
    assert numbers.closed


@in_loop
async def test_history_comes_first_and_then_every_overview() -> None:
    numbers = Numbers()
    async with showing(numbers) as url, contextlib.aclosing(events(f"{url}/v2/overview")) as stream:
        await numbers.told.put(stats(topic("orders", group(lag=3)), time_ms=1_000, produced_per_s=4.0))
        name, history = await anext(stream)
        assert name == "history"
        assert set(history) == {"time_ms", "produced_per_s", "acked_per_s", "oldest_ms", "in_flight", "dead_letters"}
        name, first = await anext(stream)
        assert (name, first["produced_per_s"], first["lag"], first["problems"]) == ("overview", 4.0, 3, [])
        assert first["topics"][0]["topic"] == "orders"
        await numbers.told.put(stats(topic("orders"), time_ms=2_000, produced_per_s=5.0))
        name, second = await anext(stream)
        assert (name, second["produced_per_s"]) == ("overview", 5.0)


@in_loop
async def test_without_a_stream_it_is_one_document() -> None:
    numbers = Numbers()
    async with showing(numbers) as url:
        await numbers.told.put(stats(time_ms=1_000, acked_per_s=2.0))
        status, answer, headers = await ask(f"{url}/v2/overview")
        assert (status, answer["overview"]["acked_per_s"], answer["history"]["acked_per_s"]) == (200, 2.0, [2.0])
        assert headers["X-Request-Id"]
        status, answer, _ = await ask(f"{url}/v2/overview?interval_ms=5")
        assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
        status, _, headers = await ask(f"{url}/v2/overview", "HEAD", headers={"Accept": "text/event-stream"})
        assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")


@in_loop
async def test_a_group_that_has_work_and_finishes_none_is_named_with_how_long() -> None:
    numbers = Numbers()
    async with showing(numbers) as url, contextlib.aclosing(events(f"{url}/v2/overview")) as stream:
        stands, works = group("stands", lag=9, consumers=1), group("works", lag=9, consumers=1, finished_per_s=1.0)
        for time_ms in (1_000, 601_000):
            await numbers.told.put(stats(topic("orders", stands, works), time_ms=time_ms))
            told = await anext(stream)
            told = await anext(stream) if told[0] == "history" else told
        assert told[1]["still"] == [{"topic": "orders", "group": "stands", "still_ms": 600_000}]


@in_loop
async def test_many_who_watch_share_one_look_and_it_is_rarer_when_nobody_does() -> None:
    numbers = Numbers()
    async with showing(numbers) as url:
        await numbers.told.put(stats(time_ms=1_000))
        await ask(f"{url}/v2/overview")
        async with contextlib.AsyncExitStack() as watching:
            streams = [
                await watching.enter_async_context(contextlib.aclosing(events(f"{url}/v2/overview"))) for _ in range(5)
            ]
            for stream in streams:
                assert (await anext(stream))[0] == "history"
                assert (await anext(stream))[0] == "overview"
            await numbers.told.put(stats(time_ms=2_000, in_flight=17))
            for stream in streams:
                assert (await anext(stream))[1]["in_flight"] == 17
            assert numbers.asked[-2:] == [STEP_MS, WATCHED_MS], "five watch, and it is asked once"
        while numbers.asked[-1] != STEP_MS:
            await asyncio.sleep(0.01)


@in_loop
async def test_a_broker_that_is_away_is_a_problem_and_the_stream_goes_on() -> None:
    numbers = Numbers()
    async with showing(numbers) as url, contextlib.aclosing(events(f"{url}/v2/overview")) as stream:
        await numbers.told.put(stats(topic("orders", group(lag=3)), produced_per_s=9.0))
        await anext(stream)
        assert (await anext(stream))[1]["problems"] == []
        await numbers.told.put(Away("nobody listens there"))
        _, away = await anext(stream)
        (problem,) = away["problems"]
        assert (problem["level"], problem["detail"]) == ("error", "nobody listens there")
        assert (away["produced_per_s"], away["lag"]) == (0.0, 3), (
            "what flows does not, what lay there is what was known"
        )
        await numbers.told.put(stats(topic("orders", group(lag=4)), produced_per_s=8.0))
        while (found := (await anext(stream))[1])["problems"]:
            pass
        assert (found["lag"], found["produced_per_s"]) == (4, 8.0)


@in_loop
async def test_what_goes_wrong_in_looking_at_the_broker_is_told_and_it_is_looked_at_again() -> None:
    numbers = Numbers()
    async with showing(numbers) as url, contextlib.aclosing(events(f"{url}/v2/overview")) as stream:
        await numbers.told.put(stats(topic("orders", group(lag=3))))
        await anext(stream)
        assert (await anext(stream))[1]["problems"] == []
        await numbers.told.put(ValueError("a bug of ours"))
        (problem,) = (await anext(stream))[1]["problems"]
        assert (problem["level"], problem["detail"]) == ("error", "the console failed to look; its log says why")
        await numbers.told.put(stats(topic("orders", group(lag=4))))
        while (found := (await anext(stream))[1])["problems"]:
            pass
        assert found["lag"] == 4


@in_loop
async def test_before_a_broker_has_answered_that_is_what_is_said() -> None:
    numbers = Numbers()
    async with showing(numbers) as url:
        await numbers.told.put(Away("nobody listens there"))
        _, answer, _ = await ask(f"{url}/v2/overview")
        assert answer["overview"]["problems"][0]["text"].startswith("the broker has not answered for")


@in_loop
async def test_a_broker_that_refuses_messages_is_a_problem() -> None:
    numbers = Numbers()
    numbers.why_not = "the disk is full"
    async with showing(numbers) as url:
        await numbers.told.put(stats())
        _, answer, _ = await ask(f"{url}/v2/overview")
        assert answer["overview"]["problems"][0]["detail"] == "the disk is full"


class Held(Noun):
    what = "steps"
    link = "#/slips"

    def __init__(self) -> None:
        self.mood = "well"
        self.looked = asyncio.Event()

    def routes(self) -> list[BaseRoute]:
        return []

    async def look(self, seen: Seen) -> Seen:
        self.looked.set()
        if self.mood == "refuses":
            raise Refused("UNAVAILABLE", "the store is away")
        if self.mood == "fails":
            raise KeyError("a mistake of ours")
        return replace(seen, paused_steps=(PausedStep(step="charge"),))


@pytest.mark.parametrize(
    ("mood", "text", "detail"),
    [
        ("well", "step charge is paused", "its slips wait until it is resumed"),
        ("refuses", "steps cannot be seen", "the store is away"),
        ("fails", "steps cannot be seen", "the console failed to look; its log says why"),
    ],
)
def test_what_else_is_looked_at_is_told_also_where_it_cannot_be_seen(mood: str, text: str, detail: str) -> None:
    @in_loop
    async def story() -> None:
        numbers, noun = Numbers(), Held()
        noun.mood = mood
        async with showing(numbers, more=[noun]) as url:
            await noun.looked.wait()
            await numbers.told.put(stats())
            _, answer, _ = await ask(f"{url}/v2/overview")
            (problem,) = answer["overview"]["problems"]
            assert (problem["text"], problem["detail"]) == (text, detail)

    story()


@in_loop
async def test_a_source_that_is_away_does_not_keep_the_problems_of_others(tmp_path: Path) -> None:
    clock = [1_000_000]
    numbers, away = Numbers(), Held()
    away.mood = "refuses"
    feed = Feed(Sources(numbers, more=[away]), now_ms=lambda: clock[0])
    await feed.open()
    try:
        await away.looked.wait()
        for minutes in range(4):
            clock[0] += 60_000 * minutes
            dead = 0 if minutes in {1, 2} else 1
            await numbers.told.put(stats(topic("orders", dead_letters=dead), time_ms=clock[0]))
            while (await feed.newest()).time_ms != clock[0]:
                await asyncio.sleep(0)
            if not minutes:
                assert await feed.acknowledge("dead letters orders", "Ada")
        found = {each.key: each.acknowledged for each in (await feed.newest()).problems}
        assert found == {"unseen steps": None, "dead letters orders": None}
    finally:
        await feed.close()


@in_loop
async def test_dead_letters_of_the_bus_are_counted_without_those_that_were_handled() -> None:
    numbers = Recorded({0: b'{"partition":0,"offset":3,"action":"redriven"}', 1: b"no record"})
    feed = Feed(Sources(numbers, bus_dead_letters=Held()))
    await feed.open()
    try:
        dead, done = topic("orders.DLQ", messages=5), topic("orders.DLQ.handled", messages=2)
        await numbers.told.put(stats(topic("parcels", dead_letters=2), topic("dlq.parcels", messages=2), dead, done))
        overview = await feed.newest()
        assert (overview.dead_letters, overview.dead_letter_counts.messages) == (6, 6)
        problem = next(each for each in overview.problems if each.key == "dead letters orders.DLQ")
        assert (problem.text, problem.link) == (
            "4 messages of orders are dead-lettered",
            "#/bus-dead-letters?topic=orders",
        )
    finally:
        await feed.close()


class Recorded(Numbers):
    """Numbers with the log of one topic of records."""

    def __init__(self, records: dict[int, bytes]) -> None:
        super().__init__()
        self._records = records

    async def log_of(self, topic: str) -> TopicLog:
        return TopicLog(1, (0,))

    async def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        for offset, value in self._records.items():
            yield LogRecord(offset, 2, value)


@in_loop
async def test_parts_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    broken = tmp_path / "parts.json"
    broken.write_text("{")
    numbers = Numbers()
    async with showing(numbers, parts=PartsFile(str(broken), lambda path, pid: True)) as url:
        await numbers.told.put(stats())
        _, answer, _ = await ask(f"{url}/v2/overview")
        (problem,) = answer["overview"]["problems"]
        assert problem["text"] == "which parts run cannot be seen"


@in_loop
async def test_a_stream_ends_when_the_console_does() -> None:
    numbers = Numbers()
    console = create_console(Sources(numbers))
    await console.open()
    async with listening(console) as url:
        await numbers.told.put(stats())
        stream = events(f"{url}/v2/overview")
        await anext(stream)
        await anext(stream)
        console.stop()
        async for _ in stream:
            pass  # one that was on its way
    await console.close()
