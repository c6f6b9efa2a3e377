"""A worker as people run it: a process that is told to stop, or killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from slipstream.client import Client
from tests.forked import Forked
from tests.server_process import ServerProcess

StartWorker = Callable[..., "WorkerProcess"]


class WorkerProcess:
    def __init__(self, url: str, topic: str, concurrency: int = 1, lease_ms: int = 10_000, drain_ms: int = 30_000):
        arguments = [url, topic, str(concurrency), str(lease_ms), str(drain_ms)]
        self.process = Forked(
            [sys.executable, "-m", "tests.client.worker_app", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def line(self) -> list[str]:
        """What it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def await_log(self, text: str) -> None:
        assert self.process.stderr is not None
        while text not in (line := self.process.stderr.readline()):
            assert line, f"it ended without {text!r}"

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end_by(self, number: int) -> int:
        """Says it again until it is dead. Not without a pause: that would keep it busy with nothing but signals."""
        while True:
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.2)

    def end(self) -> tuple[int, list[list[str]]]:
        """Its exit code, and what it said last."""
        code = self.process.wait(30)
        assert self.process.stdout is not None
        # Not `communicate`: what a line that was read before brought along would be lost.
        return code, [line.split() for line in self.process.stdout]


@pytest.fixture
def start_worker(shared: ServerProcess, topic: str) -> Iterator[StartWorker]:
    workers: list[WorkerProcess] = []

    def start(**settings: int) -> WorkerProcess:
        workers.append(WorkerProcess(shared.base, topic, **settings))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


@pytest.fixture
def client(shared: ServerProcess) -> Iterator[Client]:
    with Client(shared.base) as client:
        yield client


def test_a_worker_killed_in_a_handler_loses_nothing_and_repeats_at_most_that_message(
    client: Client, topic: str, start_worker: StartWorker
) -> None:
    count, kills = 60, 4
    client.produce_batch(topic, [str(n) for n in range(count)])
    begun: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    in_hand: list[int] = []
    for number in range(kills + 1):
        worker = start_worker(lease_ms=300)
        steps = random.randint(1, 15) if number < kills else 10**9
        last = -1
        while steps and ended.keys() != set(range(count)):
            word, text, _ = worker.line()
            last = int(text)
            (begun if word == "begin" else ended)[last] += 1
            steps -= 1
        worker.signal(signal.SIGKILL)
        _, said = worker.end()
        for word, text, _ in said:  # between the last line that was read and its death
            last = int(text)
            (begun if word == "begin" else ended)[last] += 1
        in_hand.append(last)
    assert ended.keys() == set(range(count)), "nothing is lost"
    repeated = Counter({n: times - 1 for n, times in begun.items()})
    assert repeated <= Counter(in_hand[:kills]), "each kill repeats what was in hand, and nothing else"


def test_sigterm_lets_the_handler_finish_and_fetches_no_more(
    client: Client, topic: str, start_worker: StartWorker
) -> None:
    client.produce_batch(topic, ["wait", "not begun"])
    worker = start_worker()
    assert worker.line() == ["begin", "wait", "1"]
    worker.signal(signal.SIGTERM)
    worker.await_log("SIGTERM: stopping")
    worker.tell()
    assert worker.end() == (0, [["end", "wait", "1"]])
    info = client.group(topic, "g")
    assert (info.lag, info.in_flight) == (1, 0), "one is done, and nobody has the other"


def test_a_worker_with_nothing_to_do_stops_and_leaves_no_lease(
    client: Client, topic: str, start_worker: StartWorker
) -> None:
    worker = start_worker()
    worker.await_log("working on")
    worker.await_log("working on")
    worker.signal(signal.SIGINT)
    assert worker.end() == (0, [])
    assert client.group(topic, "g").in_flight == 0


@pytest.mark.parametrize("text", ["hang", "block in a thread"])
def test_a_handler_that_does_not_finish_is_given_up_and_its_message_given_back(
    client: Client, topic: str, start_worker: StartWorker, text: str
) -> None:
    client.produce(topic, text)
    worker = start_worker(drain_ms=100, lease_ms=3_600_000)
    assert worker.line()[0] == "begin"
    worker.signal(signal.SIGTERM)
    assert worker.end()[0] == 0
    group = "threads" if text == "block in a thread" else "g"
    (message,) = client.fetch(topic, group, wait_ms=20_000)
    assert (message.attempts, message.last_error) == (2, "the worker was stopped before the handler was done")


def test_a_handler_that_cannot_be_stopped_does_not_keep_the_process_for_ever(
    client: Client, topic: str, start_worker: StartWorker
) -> None:
    client.produce(topic, "deaf")
    worker = start_worker()
    assert worker.line()[0] == "begin"
    worker.signal(signal.SIGTERM)
    worker.await_log("SIGTERM: stopping")
    worker.signal(signal.SIGTERM)
    assert worker.line()[0] == "deaf"
    worker.signal(signal.SIGTERM)
    assert worker.end()[0] == -signal.SIGTERM


def test_a_thread_left_behind_does_not_keep_the_process_for_ever(
    client: Client, topic: str, start_worker: StartWorker
) -> None:
    """Python waits for the threads of `asyncio.to_thread`; but its message is given back by then."""
    client.produce(topic, "block")
    worker = start_worker(drain_ms=1, lease_ms=3_600_000)
    assert worker.line()[0] == "begin"
    worker.signal(signal.SIGTERM)
    (message,) = client.fetch(topic, "g", wait_ms=30_000)
    assert message.attempts == 2
    assert worker.end_by(signal.SIGTERM) == -signal.SIGTERM


def test_a_second_signal_does_not_wait(client: Client, topic: str, start_worker: StartWorker) -> None:
    client.produce(topic, "hang")
    worker = start_worker(lease_ms=3_600_000, drain_ms=3_600_000)
    assert worker.line()[0] == "begin"
    worker.signal(signal.SIGTERM)
    worker.await_log("SIGTERM: stopping; again to stop at once")
    worker.signal(signal.SIGINT)
    assert worker.end()[0] == 0
    (message,) = client.fetch(topic, "g", wait_ms=20_000)
    assert message.attempts == 2
