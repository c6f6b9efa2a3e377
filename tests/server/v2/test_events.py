"""`GET /v2/events`: rates, lag, in flight and dead letters, as they change."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from typing import Any

from slipstream.broker import BrokerConfig
from slipstream.engine import Engine
from slipstream.server.v2.events import TOPICS_AT_A_TIME, Sampler
from slipstream.store import MemoryStore
from tests.client.loop import in_loop
from tests.conftest import StartServer
from tests.server.v2.wire import V2


def events(v2: V2, is_open: threading.Event | None = None, **query: Any) -> Generator[Any, None, None]:
    with v2.server.client.stream("GET", v2.server.base + "/v2/events", params=query) as response:
        if is_open is not None:
            is_open.set()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                assert name == "stats"
                yield json.loads(line.removeprefix("data: "))


def test_the_numbers_of_a_topic_are_there(v2: V2) -> None:
    v2.produce("a", "b", "c", {"value": "d", "delay_ms": 60_000})
    taken = v2.fetch(max_messages=2)
    v2.nack(taken[0] | {"retryable": False})
    (stats,) = events(v2, count=1, interval_ms=100)
    (mine,) = [each for each in stats["topics"] if each["topic"] == v2.topic]
    (group,) = mine["groups"]
    assert (mine["messages"], mine["bytes"], mine["dead_letters"]) == (4, 4, 1)
    assert (group["lag"], group["in_flight"], group["paused"], group["consumers"]) == (3, 1, False, 0)
    assert group["oldest_unfinished_age_ms"] >= 0
    assert stats["lag"] >= 3
    assert stats["dead_letters"] >= 1


def test_rates_are_what_happened_since_the_last_event(v2: V2) -> None:
    stream = events(v2, interval_ms=100)
    next(stream)
    other = V2(v2.server, v2.topic)
    for _ in range(200):
        v2.server.post("/v1/produce", {"topic": v2.topic, "value": "a"})
        other.ack(*other.fetch())
        stats = next(stream)
        (mine,) = [each for each in stats["topics"] if each["topic"] == v2.topic]
        if mine["produced_per_s"] > 0 and mine["groups"][0]["finished_per_s"] > 0:
            break
    else:
        raise AssertionError("nothing was ever seen to be produced")
    assert stats["produced_per_s"] > 0
    assert stats["acked_per_s"] > 0
    stream.close()


def test_a_stop_ends_the_stream(start_server: StartServer) -> None:
    server = start_server()
    is_open = threading.Event()
    stream = events(V2(server, "t"), is_open, interval_ms=60_000, count=2)

    ended = threading.Thread(target=lambda: list(stream))
    ended.start()
    assert is_open.wait(30)
    assert server.stop() == 0
    ended.join(10)
    assert not ended.is_alive()


def test_what_is_asked_for_is_checked(v2: V2) -> None:
    v2.call("GET", "/v2/events?interval_ms=1", expect=400)
    v2.call("GET", "/v2/events?colour=red", expect=400)


def test_the_head_of_the_events_is_an_answer_with_an_end(v2: V2) -> None:
    """Its body is not sent, so nobody would ever know when it is over: the next request on the connection waits."""
    with v2.server.connect() as connection:
        head = b"HEAD /v2/events HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(head + head + b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answers = b""
        while data := connection.recv(65536):
            answers += data
    assert answers.count(b"HTTP/1.1 200") == 3
    assert answers.count(b"text/event-stream") == 2


@in_loop
async def test_many_topics_are_looked_at_some_at_a_time() -> None:
    """All at once, ten who watch eight thousand topics kept everybody else waiting for more than a second."""
    engine = Engine(BrokerConfig(), MemoryStore())
    engine.start(asyncio.get_running_loop())
    for number in range(5 * TOPICS_AT_A_TIME):
        engine.broker.create_topic(0, f"t{number}")
    sampling = asyncio.create_task(Sampler(engine).sample())
    turns = 0
    while not sampling.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:
            await engine.delete_topic("t499")
    assert turns >= 3, "and the delete took some as well"
    assert [topic.topic for topic in (await sampling).topics] == [f"t{number}" for number in range(499)]
    await engine.close()
