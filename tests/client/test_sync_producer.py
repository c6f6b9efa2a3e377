"""The producer without an event loop, against a server."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.client import Client, InvalidArgument, NotFound, ProduceFailed, SlipstreamError, sync_producer
from tests.server_process import ServerProcess


def test_messages_are_stored_in_order(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        with client.producer(topic) as producer:
            places = [producer.send(str(n)) for n in range(2_000)]
        assert [place.result().offset for place in places] == [*range(2_000)]
        assert [message.value for message in client.scan(topic)] == [str(n).encode() for n in range(2_000)]


def test_a_flush_waits_for_all_that_was_sent_before(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client, client.producer(topic, linger_ms=3_600_000) as producer:
        for _ in range(20):
            place = producer.send("v")
            producer.flush()
            assert place.done()
            assert producer.buffered_messages == producer.buffered_bytes == 0


def test_threads_may_share_one(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        with client.producer(topic, max_buffered_messages=10) as producer, ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: producer.send(str(n)).result(), range(200)))
        assert sorted(int(message.value) for message in client.scan(topic)) == [*range(200)]


def test_send_blocks_while_there_is_no_room(
    server: ServerProcess, own_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is stopped in its tracks: what it does not take stays here, and no more than there is room for."""
    monkeypatch.setattr(sync_producer, "HANDED_MESSAGES", 5)
    assert server.process is not None
    with Client(server.base) as client:
        producer = client.producer(own_topic, max_buffered_messages=10, linger_ms=0)
        most = 0

        def send_all() -> None:
            nonlocal most
            for n in range(100):
                producer.send(str(n))
                most = max(most, producer.buffered_messages)

        server.process.send_signal(signal.SIGSTOP)
        sender = threading.Thread(target=send_all)
        sender.start()
        while producer._producer.buffered_messages < 10 or len(producer._handed) < 5:
            pass
        assert sender.is_alive()
        server.process.send_signal(signal.SIGCONT)
        sender.join()
        producer.close()
        assert most <= 10 + 2 * 5, "in the buffer, on the way to it, and being handed over"
        assert [int(message.value) for message in client.scan(own_topic)] == [*range(100)]


def test_failures_are_raised(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        producer = client.producer("nowhere")
        place = producer.send("lost")
        with pytest.raises(ProduceFailed):
            producer.flush()
        assert isinstance(place.exception(), NotFound)
        with pytest.raises(InvalidArgument):
            producer.send("v", attributes={"a": object()})  # type: ignore[dict-item]
        producer.close()
        with pytest.raises(SlipstreamError, match="closed"):
            producer.send("late")


def test_a_producer_nobody_closed_loses_nothing(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        client.producer(topic, linger_ms=3_600_000).send("forgotten")
    with Client(shared.base) as client:
        assert [message.value for message in client.scan(topic)] == [b"forgotten"]
    with pytest.raises(ProduceFailed), Client(shared.base) as client:
        client.producer("nowhere").send("lost")


def test_it_does_not_hide_another_exception(shared: ServerProcess) -> None:
    with (
        Client(shared.base) as client,
        pytest.raises(ZeroDivisionError) as caught,
        client.producer("nowhere") as producer,
    ):
        producer.send("lost")
        raise ZeroDivisionError
    assert "were not stored" in caught.value.__notes__[0]


def test_a_message_that_was_given_up_does_not_end_the_handover(shared: ServerProcess, topic: str) -> None:
    """Closed while messages were on their way into the loop: one of those was cancelled, the next must still hear."""
    with Client(shared.base) as client:
        producer = client.producer(topic)
        entered, release = threading.Event(), threading.Event()

        def hold_the_loop() -> None:
            entered.set()
            release.wait()

        producer._portal.loop.call_soon_threadsafe(hold_the_loop)
        entered.wait()
        given_up, other = producer.send("a"), producer.send("b")
        given_up.cancel()
        producer._producer._closing = True
        release.set()
        with pytest.raises(SlipstreamError, match="closed"):
            other.result(timeout=30)
        producer.hand_over()
