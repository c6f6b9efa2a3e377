"""What was composed is written once, whoever was stopped in between."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from slipstream.api import TopicConfigFields
from slipstream.client import BrokerFull, Client
from slipstream.pipeline.replay import PassedOver, ReplayForgotten
from slipstream.pipeline.replay.folder import Replay
from slipstream.pipeline.replay.plan import Reached
from slipstream.pipeline.replay.sending import Sender, slices
from slipstream.pipeline.replay.sending import log as sending_log
from slipstream.testing import MemoryBroker
from tests.pipeline.replay.composed import composed, from_place, message
from tests.server_process import ServerProcess


class Killed(Exception):
    """Where a process ends without another word."""


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


def test_stopped_while_it_waits_for_a_full_topic_it_ends_where_it_was_and_goes_on_from_there(tmp_path: Path) -> None:
    class Stops(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sending.stop()

    handler = Stops()
    with MemoryBroker() as broker, broker.client(retry_for_ms=0) as client:
        client.create_topic("orders", config=TopicConfigFields(max_waiting_messages=4))
        client.fetch("orders", "readers", wait_ms=0)
        replay = composed(tmp_path, [message(n) for n in range(6)])
        sending = sender(client, replay, 3)
        sending_log.addHandler(handler)
        try:
            assert sending.send() == 3, "what is stopped has not failed"
        finally:
            sending_log.removeHandler(handler)
        client.change_topic("orders", config=TopicConfigFields(max_waiting_messages=100))
        assert sender(client, replay, 3).send() == 6
        assert values(client) == list(range(6))


def test_stopped_while_the_server_is_away_it_ends_where_it_was(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client(retry_for_ms=0) as client:
        client.create_topic("orders")
        sending = sender(client, composed(tmp_path, [message(n) for n in range(6)]), 3)

        def told(at: int) -> None:
            if at == 3:
                broker.close()
                timer.start()

        timer = threading.Timer(0.2, sending.stop)
        assert sending.send(told) == 3
        timer.join()


# What is never taken


def test_a_partition_that_is_not_there_any_more_is_left_to_the_key(tmp_path: Path) -> None:
    """While one that is there is kept, also beside it in the same commit."""
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders", 3)
        client.create_topic("invoices")
        by_key = client.produce("orders", b"first", key="k1").partition
        other = (by_key + 1) % 3
        rows = [
            message(1, envelope=from_place(1, partition_override=7)),
            message(1, envelope=from_place(2, partition_override=other)),
            message(2, "invoices", envelope=from_place(3, partition_override=1)),
            message(1, envelope=from_place(4)),
        ]
        replay = composed(tmp_path, rows)
        assert sender(client, replay).send() == 4
        assert replay.passed_over(4) == []
        found = {
            partition: [each.envelope for each in client.scan("orders", partition) if each.envelope is not None]
            for partition in range(3)
        }
        assert [each.labels for each in found[by_key]] == [{"replayed_from": f"orders/0/{n}"} for n in (1, 4)]
        assert [each.partition_override for each in found[by_key]] == [None, None]
        assert [each.labels for each in found[other]] == [{"replayed_from": "orders/0/2"}]
        assert values(client, "invoices") == [2]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of aiohttp, which is right
@pytest.mark.parametrize("commit", [1, 4, 100])
def test_what_the_server_will_never_take_is_passed_over_and_said_and_the_others_are_there_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, commit: int
) -> None:
    rows = [message(n, envelope=from_place(100 + n)) for n in range(20)]
    rows[6]["value"] = b"x" * 200_000
    rows[7]["value"] = None
    rows[19]["value"] = b"x" * (20 << 20)
    with MemoryBroker(max_batch_bytes=100_000) as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, rows[:15], rows[15:], group=100)
        told: list[int] = []
        assert sender(client, replay, commit, 100 << 20).send(told.append) == 20
        assert told == sorted(set(told)), "each place is reached once"
        assert values(client) == [n for n in range(20) if n not in {6, 7, 19}]
        passed_over = replay.passed_over(20)
        assert [(each.number, each.place) for each in passed_over] == [
            (7, "orders/0/106"),
            (8, "orders/0/107"),
            (20, "orders/0/119"),
        ]
        assert "a request body is limited to 100000 bytes" in passed_over[0].reason
        assert "has no value" in passed_over[1].reason
        said = [record.getMessage() for record in caplog.records if record.name == sending_log.name]
        assert [line.partition(": ")[0] for line in said] == [
            f"the server does not take a message, and the replay passes over orders/0/{n}" for n in (106, 107, 119)
        ]
        assert client.writer_sequence(replay.plan.writer) == 20
        assert sender(client, replay).send() == 20
        assert len(values(client)) == 17


def test_what_is_only_too_much_together_is_halved_and_all_of_it_stored(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders", config=TopicConfigFields(max_waiting_messages=3))
        replay = composed(tmp_path, [message(n) for n in range(20)], group=100)
        assert sender(client, replay, 100).send() == 20
        assert values(client) == list(range(20))
        assert replay.passed_over(20) == []


def test_where_the_server_takes_no_commit_at_all_nothing_is_passed_over(tmp_path: Path) -> None:
    with MemoryBroker(max_writers=1) as broker, broker.client() as client:
        client.create_topic("orders")
        client.commit("another", 1)
        replay = composed(tmp_path, [message(n) for n in range(6)])
        with pytest.raises(BrokerFull, match="max_writers"):
            sender(client, replay).send()
        assert replay.passed_over(sender(client, replay).reached()) == []


def test_killed_before_the_server_knew_of_it_a_message_is_not_passed_over_that_is_taken_later(tmp_path: Path) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, [message(n) for n in range(6)])
        replay.pass_over(PassedOver(3, "orders/0/2", "too large, then"))
        with replay.passed_over_path.open("ab") as file:
            file.write(b'{"number": 4, "pla')
        assert sender(client, replay).send() == 6
        assert values(client) == list(range(6))
        assert replay.passed_over(6) == []


def test_killed_after_the_server_knew_of_it_a_message_stays_passed_over_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(replay: Replay, reached: Reached) -> None:
        if reached.rows == 3:
            raise Killed

    rows = [message(n, envelope=from_place(n)) for n in range(6)]
    rows[2]["value"] = b"x" * 200_000
    with MemoryBroker(max_batch_bytes=100_000) as broker, broker.client() as client:
        client.create_topic("orders")
        replay = composed(tmp_path, rows)
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(Replay, "reach", reach)
            sender(client, replay).send()
        assert sender(client, replay).reached() == 3
        assert sender(client, replay).send() == 6
        assert [each.place for each in replay.passed_over(6)] == ["orders/0/2"]
        assert values(client) == [0, 1, 3, 4, 5]


# A server that comes and goes


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
