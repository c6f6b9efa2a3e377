"""The client without an event loop: the same surface, and the same behaviour because it is the same code."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading

import pytest

from slipstream.client import (
    AsyncClient,
    AsyncMessage,
    Client,
    InProgress,
    NotFound,
    Producer,
    Redrive,
    SlipstreamError,
    SyncMessage,
    SyncProducer,
    SyncRedrive,
)
from tests.server_process import ServerProcess

PAIRS: list[tuple[type, type]] = [
    (AsyncClient, Client),
    (AsyncMessage, SyncMessage),
    (Producer, SyncProducer),
    (Redrive, SyncRedrive),
]

ONLY_INSIDE = {"retries", "take", "check_open", "hand_over"}
"""What `Producer` and the worker need, and no user."""


def surface(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    """Public names, with their parameters where they have some."""
    found: dict[str, list[tuple[str, object, object]]] = {}
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or name in ONLY_INSIDE:
            continue
        parameters = inspect.signature(member).parameters.values() if callable(member) else []
        found[name] = [(p.name, p.default, p.annotation) for p in parameters if p.name not in {"self", "client"}]
    return found


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_have_one_surface(one: type, other: type) -> None:
    attributes = {"status", "topic", "limits", "buffered_messages", "buffered_bytes", "url", "owner"}
    here, there = surface(one), surface(other)
    assert here.keys() - attributes == there.keys() - attributes
    for name in here.keys() & there.keys():
        assert here[name] == there[name], name


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_are_made_in_the_same_way(one: type, other: type) -> None:
    if one is AsyncClient:
        assert inspect.signature(one) == inspect.signature(other)


def test_every_public_method_says_what_it_does() -> None:
    for kind in (AsyncClient, Client, Producer, SyncProducer):
        for name, member in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name not in {"resume", "check_open"}:
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"


def test_a_whole_story_without_an_await(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        assert client.topic(topic).name == topic
        assert client.produce(topic, "one", key="k").offset == 0
        client.produce_batch(topic, ["two", "three"])
        one, two, three = client.fetch(topic, "g", wait_ms=20_000)
        with client.once(one) as first:
            assert first
        with one.once() as first:
            assert not first
        with pytest.raises(ZeroDivisionError), two.once():
            raise ZeroDivisionError
        with one.once("x"), pytest.raises(InProgress), one.once("x"):
            pass
        one.ack()
        assert two.extend(60_000) > 0
        two.nack("bad", retryable=False)
        client.ack(three)
        (letter,) = client.dead_letters(topic)
        assert letter.value == b"two"
        assert client.redrive(topic).wait().redriven == 1
        assert [message.value for message in client.scan(topic)] == [b"one", b"two", b"three", b"two"]
        assert client.read_arrow(topic).num_rows == 4
        assert client.group(topic, "g").lag == 1
        for stats in client.events(interval_ms=100):
            assert stats.topics
            break
        with pytest.raises(NotFound):
            client.topic("nowhere")


def test_an_iterator_that_is_not_finished_lets_go(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        client.produce_batch(topic, ["a", "b"])
        scan = client.scan(topic, follow=True)
        assert next(scan).value == b"a"
        del scan
        later = client.scan(topic, follow=True)
        assert next(later).value == b"a"
    later.close()  # type: ignore[attr-defined] # after the client, as happens to an iterator that is left lying about


def test_threads_may_share_one(shared: ServerProcess, topic: str) -> None:
    with Client(shared.base) as client:
        threads = [threading.Thread(target=client.produce, args=(topic, str(n))) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(int(message.value) for message in client.scan(topic)) == [*range(20)]


def test_it_can_be_used_inside_a_running_loop(shared: ServerProcess) -> None:
    """As in a notebook: it has a loop of its own."""

    async def inside() -> None:
        with Client(shared.base) as client:
            client.topics()

    asyncio.run(inside())


def test_a_client_that_was_closed_says_so(shared: ServerProcess) -> None:
    client = Client(shared.base)
    client.close()
    client.close()
    with pytest.raises(SlipstreamError, match="closed"):
        client.topics()


def test_ctrl_c_ends_a_call_and_a_forgotten_client_does_not_hold_up_the_end(shared: ServerProcess, topic: str) -> None:
    program = f"""
import sys
from slipstream.client import Client
client = Client({shared.base!r})
client.topics()
print("ready", flush=True)
try:
    client.fetch({topic!r}, "g", wait_ms=60_000)
except KeyboardInterrupt:
    print("interrupted", client.topic({topic!r}).name)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    shared.await_metric(0, "consumer_lag", topic=topic, group="g", partition="0")  # it waits for messages now
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out == f"interrupted {topic}\n"
    assert process.returncode == 0
