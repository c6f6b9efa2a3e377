"""The disk refuses in the middle of everything (ruling 12), or has no room."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.server_process import ServerProcess


@pytest.fixture
def failed(start_server: StartServer) -> ServerProcess:
    """A server with five messages stored, whose next write fails with EIO."""
    server = start_server("--router", "tests.server.broken_disk:leave")
    server.create("t")
    for number in range(5):
        assert server.produce("t", f"kept {number}").status_code == 200
    (server.data / "BROKEN").touch()
    return server


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
    problem = failed.problem()
    assert (problem["level"], problem["text"]) == ("error", "the broker takes no messages")
    assert problem["detail"] == ready.json()["reason"]


def test_what_was_acknowledged_before_is_there_after_a_restart_on_a_good_disk(failed: ServerProcess) -> None:
    assert failed.produce("t", "refused").status_code == 503
    (failed.data / "BROKEN").unlink()
    assert failed.produce("t", "still refused").status_code == 503
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
    (failed.data / "BROKEN").unlink()
    failed.restart()
    assert [item["value"] for item in failed.take("t", 5, owner="another")] == [item["value"] for item in taken]


def test_a_stop_after_a_failure_says_so_with_its_exit_code(failed: ServerProcess) -> None:
    assert failed.produce("t", "refused").status_code == 503
    (failed.data / "BROKEN").unlink()  # the disk is well again, too late
    assert failed.stop() == 6


# A full disk is another matter: what was refused is known, and the file's end


def limit_files(server: ServerProcess, more: int | None) -> None:
    """Let the server's files grow by `more` bytes beyond the largest journal, or by any number."""
    assert server.process is not None
    size = max(path.stat().st_size for path in server.data.glob("journal-*"))
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most if more is None else size + more, most))


def test_without_room_writes_are_refused_until_there_is_some_and_nothing_is_restarted(server: ServerProcess) -> None:
    server.create("t")
    for number in range(3):
        assert server.produce("t", f"kept {number}").status_code == 200
    with server.consume("t") as items:
        first = next(items)
        limit_files(server, 10)
        refused = server.produce("t", "in this moment", idempotency_key="k")
        assert (refused.status_code, refused.json()["error"]) == (503, "UNAVAILABLE")
        assert int(refused.headers["retry-after"]) >= 1
        for response in (
            server.produce("t", "refused"),
            server.ack("t", first),
            server.post("/v1/topics?name=u"),
            server.post("/v2/topics", {"name": "u"}),
            server.post("/v2/produce", {"topic": "t", "messages": [{"value": "refused"}]}),
        ):
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert "without a restart" in response.json()["message"]
        assert server.get("/v1/healthz").status_code == 503
        assert server.get("/health/ready").status_code == 503
        assert server.metric("slipstream_writable") == 0
        limit_files(server, None)
        server.await_log("there is room for the journal again")
        server.await_metric(1, "slipstream_writable")
        assert server.ack("t", first).status_code == 204
        again = server.produce("t", "in this moment", idempotency_key="k")
        assert again.status_code == 200
        assert server.produce("t", "after").status_code == 200
    expected = [f"kept {number}" for number in range(3)] + ["in this moment", "after"]
    assert [message["value"] for message in server.get("/v2/topics/t/messages").json()["messages"]] == expected
    assert server.stop() == 0
    server.start()
    assert [message["value"] for message in server.get("/v2/topics/t/messages").json()["messages"]] == expected


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB, of which a tenth is kept free."""
    folder = tmp_path / "volume"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_nearly_full_refuses_producers_alone_until_there_is_room(
    small_volume: Path, start_server: StartServer
) -> None:
    server = start_server(data=small_volume / "data")
    server.create("t")
    assert server.produce("t", "before").status_code == 200
    assert server.metric("slipstream_disk_low") == 0
    ballast = small_volume / "ballast"
    ballast.write_bytes(bytes((32 << 20) - (2 << 20)))
    server.await_metric(1, "slipstream_disk_low")
    refused = server.produce("t", "refused")
    assert (refused.status_code, refused.json()["reason"], refused.headers["retry-after"]) == (429, "disk_low", "5")
    assert "disk_free_bytes" in refused.json()["message"]
    batch = server.post("/v2/produce", {"topic": "t", "messages": [{"value": "refused"}]})
    assert (batch.status_code, batch.json()["reason"]) == (429, "disk_low")
    assert server.metric("produce_rejected_total", reason="disk_low") == 2
    item = server.take("t")[0]
    assert server.nack("t", item).status_code == 204
    item = server.take("t")[0]
    assert server.ack("t", item).status_code == 204
    ready = server.get("/health/ready")
    assert (ready.status_code, "nearly full" in ready.json()["conditions"][0]) == (200, True)
    problem = server.problem()
    assert (problem["level"], problem["text"]) == ("error", "producers are refused: the disk is nearly full")
    ballast.unlink()
    server.await_metric(0, "slipstream_disk_low")
    assert server.produce("t", "after").status_code == 200
    server.await_log("the disk has room again")


def test_a_volume_that_is_full_to_the_last_byte_heals_when_there_is_room(
    small_volume: Path, start_server: StartServer
) -> None:
    """Without a limit below which producers are refused, the journal itself runs into the end of the volume."""
    server = start_server("--disk-free-bytes", "0", data=small_volume / "data")
    server.create("t")
    ballast = small_volume / "ballast"
    ballast.write_bytes(bytes(31 << 20))
    large, stored = "x" * 100_000, 0
    while server.produce("t", large, idempotency_key=str(stored)).status_code == 200:
        stored += 1
    assert stored < 15
    ballast.unlink()
    server.await_log("there is room for the journal again")
    server.await_metric(1, "slipstream_writable")
    assert server.produce("t", large, idempotency_key=str(stored)).status_code == 200
    assert server.produce("t", "after").status_code == 200
    server.restart()
    messages = server.get("/v2/topics/t/messages").json()["messages"]
    assert [len(message["value"]) for message in messages] == [100_000] * (stored + 1) + [5]
    assert not [line for line in server.log if "unfinished commit" in line]
