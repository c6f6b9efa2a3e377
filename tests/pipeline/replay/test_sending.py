"""What was composed is written once, whoever was stopped in between."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.api import TopicConfigFields
from slipstream.client import Client
from slipstream.pipeline.replay import Asked, ReplayForgotten, Replays
from slipstream.pipeline.replay.composing import message_schema
from slipstream.pipeline.replay.folder import Replay
from slipstream.pipeline.replay.plan import Part, Reached
from slipstream.pipeline.replay.sending import Sender, slices
from slipstream.pipeline.replay.sending import log as sending_log
from slipstream.testing import MemoryBroker
from tests.server_process import ServerProcess

QUESTION = Asked(table="messages")


def message(number: int, topic: str = "orders", **more: Any) -> dict[str, Any]:
    return {"topic": topic, "key": b"k%d" % (number % 3), "value": b"%d" % number, "headers": [("n", "1")], **more}


def composed(root: Path, *parts: Sequence[dict[str, Any]], group: int = 7) -> Replay:
    with Replays(root).composing(QUESTION) as place:
        written = []
        for number, rows in enumerate(parts):
            table = pa.Table.from_pylist(list(rows), schema=message_schema())
            pq.write_table(table, place.path / f"{number}.parquet", row_group_size=group)
            written.append(Part(f"{number}.parquet", len(rows)))
        return place.plan(tuple(written), {}, 0)


def sender(client: Client, replay: Replay, messages: int = 5, size: int = 1 << 20, **more: Any) -> Sender:
    return Sender(client, replay, commit_messages=messages, commit_bytes=size, **more)


def values(client: Client, topic: str = "orders") -> list[int]:
    return [int(each.value) for each in client.scan(topic, 0)]


def test_rows_come_in_their_order_from_anywhere_on(tmp_path: Path) -> None:
    replay = composed(tmp_path, [message(n) for n in range(20)], [message(n) for n in range(20, 23)])
    for start in range(24):
        for most in (1, 4, 100):
            found = list(slices(replay, start, most, 1 << 20))
            assert [int(value) for _, rows in found for value in rows.column("value").to_pylist()] == [
                *range(start, 23)
            ]
            assert all(rows.num_rows <= most for _, rows in found)
            assert [end for end, _ in found][-1:] == ([23] if start < 23 else [])


def test_a_piece_is_no_larger_than_it_may_be_unless_it_is_one_message(tmp_path: Path) -> None:
    replay = composed(tmp_path, [message(n, headers=None, value=b"0" * 1_000) for n in range(14)])
    assert {rows.num_rows for _, rows in slices(replay, 0, 100, 10)} == {1}
    assert max(rows.num_rows for _, rows in slices(replay, 0, 100, 5_000)) in range(2, 5)


def test_who_comes_after_one_that_stopped_goes_on_behind_it_with_pieces_of_another_size(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, [message(n) for n in range(20)], [message(n) for n in range(20, 30)])
        first = sender(client, replay, 4)
        assert first.send(lambda at: first.stop() if at >= 11 else None) in range(11, 15)
        stopped = len(values(client))
        # As if it had been killed between its commit and its note.
        replay.reach(Reached(stopped - 4))
        told: list[int] = []
        assert sender(client, replay, 3).send(told.append) == 30
        assert told[0] == stopped
        assert values(client) == list(range(30))
        assert sender(client, replay).send() == 30
        assert len(values(client)) == 30
        found = next(client.scan("orders", 0))
        assert (found.key, found.attributes) == (b"k0", {"n": "1"})


def test_a_server_that_knows_less_than_was_written_is_refused(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, [message(n) for n in range(9)])
        replay.reach(Reached(5))
        with pytest.raises(ReplayForgotten, match=r"5 messages of replay .* were written, and the server knows of 0"):
            sender(client, replay).send()
        assert values(client) == []


def test_a_commit_may_be_for_many_topics(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        for name in ("orders", "invoices"):
            client.create_topic(name)
        replay = composed(tmp_path, [message(n, "orders" if n % 2 else "invoices") for n in range(10)])
        sender(client, replay).send()
        assert values(client) == [1, 3, 5, 7, 9]
        assert values(client, "invoices") == [0, 2, 4, 6, 8]


def test_with_a_rate_it_goes_in_small_pieces_and_stops_while_it_waits(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, [message(n) for n in range(10)], group=100)
        told: list[int] = []
        sender(client, replay, 100, rate=20).send(told.append)
        assert told == [0, 5, 10], "so many in a quarter of a second"
        told.clear()
        slow = composed(tmp_path, [message(n) for n in range(3)])
        sending = sender(client, slow, rate=0.001)
        assert sending.send(lambda at: sending.stop() if at else None) == 1, (
            "who waits for its time hears that it is over"
        )


def test_a_full_topic_is_waited_for(tmp_path: Path) -> None:
    """Until somebody makes room, which here is who hears that it waits."""

    class MakesRoom(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            client.change_topic("orders", config=TopicConfigFields(max_waiting_messages=100))

    heard: list[str] = []
    handler = MakesRoom()
    with MemoryBroker() as broker, broker.client(retry_for_ms=0) as client:
        client.create_topic("orders", config=TopicConfigFields(max_waiting_messages=4))
        client.fetch("orders", "readers", wait_ms=0)
        replay = composed(tmp_path, [message(n) for n in range(6)])
        sending_log.addHandler(handler)
        try:
            assert sender(client, replay, 3).send() == 6
        finally:
            sending_log.removeHandler(handler)
        assert len(heard) == 1
        assert heard[0].startswith("the server asks to wait, and the replay does: ")
        assert values(client) == list(range(6))


@pytest.mark.slow
def test_what_the_server_forgets_when_it_starts_anew_is_staged_again(server: ServerProcess, tmp_path: Path) -> None:
    server.create("orders")
    replay = composed(tmp_path, [message(n) for n in range(20)])
    with Client(server.base) as client:
        sending = sender(client, replay, 4)

        def told(at: int) -> None:
            if at == 8:
                server.kill()
                server.start()

        assert sending.send(told) == 20
        assert values(client) == list(range(20))
