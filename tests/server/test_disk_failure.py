"""The disk refuses in the middle of everything (ruling 12)."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ServerProcess


@pytest.fixture
def failed(server: ServerProcess) -> Iterator[ServerProcess]:
    """A server with five messages stored, whose files may not grow any more: the next write fails with EFBIG."""
    server.create("t")
    for number in range(5):
        assert server.produce("t", f"kept {number}").status_code == 200
    assert server.process is not None
    size = max(path.stat().st_size for path in Path(server.data).glob("journal-*"))
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 10, most))
    yield server


def test_a_write_that_fails_is_503_and_so_is_everything_after_it(failed: ServerProcess) -> None:
    for attempt in range(3):
        response = failed.produce("t", f"refused {attempt}")
        assert response.status_code == 503, response.text
        assert response.json()["error"] == "UNAVAILABLE"
    assert failed.post("/v1/topics", {"name": "u"}).status_code == 503
    health = failed.get("/v1/healthz")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert failed.metric("slipstream_writable") == 0


def test_a_server_that_refuses_messages_is_live_and_not_ready_and_the_console_says_why(failed: ServerProcess) -> None:
    assert failed.produce("t", "refused").status_code == 503
    assert failed.get("/health/live").status_code == 200
    ready = failed.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "waiting")
    assert failed.get("/v2/server").json()["writable"] is False
    overviews = (failed.get("/v2/overview").json()["overview"] for _ in range(10_000))
    problem = next(found["problems"][0] for found in overviews if found["problems"])
    assert (problem["level"], problem["text"]) == ("error", "the broker takes no messages")
    assert problem["detail"] == ready.json()["reason"]


def test_what_was_acknowledged_before_is_there_after_a_restart_on_a_good_disk(failed: ServerProcess) -> None:
    assert failed.produce("t", "refused").status_code == 503
    failed.restart()
    assert failed.get("/v1/healthz").status_code == 200
    assert failed.metric("slipstream_writable") == 1
    values = [item["value"] for item in failed.take("t", 5)]
    assert values == [f"kept {number}" for number in range(5)]
    assert failed.produce("t", "after").status_code == 200


def test_streams_stay_open_and_their_acks_are_refused(failed: ServerProcess) -> None:
    """The journal cannot take the deliveries either: after a restart the messages come again."""
    with failed.consume("t", lease_ms=60_000) as items:
        taken = list(itertools.islice(items, 5))
        assert failed.produce("t", "refused").status_code == 503
        for item in taken:
            response = failed.ack("t", item)
            assert (response.status_code, response.json()["error"]) == (503, "UNAVAILABLE")
        assert failed.nack("t", taken[0]).status_code == 503
    failed.restart()
    assert [item["value"] for item in failed.take("t", 5, owner="another")] == [item["value"] for item in taken]


def test_a_stop_after_a_failure_says_so_with_its_exit_code(failed: ServerProcess) -> None:
    assert failed.produce("t", "refused").status_code == 503
    assert failed.process is not None
    _, most = resource.prlimit(failed.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(failed.process.pid, resource.RLIMIT_FSIZE, (most, most))  # the disk is well again, too late
    assert failed.stop() == 6
