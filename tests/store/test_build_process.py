"""The process that builds segments, and what happens to the broker without it."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from slipstream.store import build_worker
from slipstream.store.build_process import BuildRequest, ProcessBuilder
from slipstream.store.disk import NoRoom
from tests.store.node import Node


def test_an_error_of_the_process_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NoRoom(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build_worker, "build_segments", full)
    answer = build_worker._answer(BuildRequest("", [], []))
    assert str(OSError(answer.errno, answer.error)) == "[Errno 28] No space left on device"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_compaction_goes_on_when_its_process_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with Node(tmp_path, compaction_process=True) as node:
        node.create("orders")
        for value in (b"1", b"2", b"3"):
            node.produce("orders", value)
            node.compact()
            builder = node.store.compactor._builder
            assert isinstance(builder, ProcessBuilder)
            if builder._process is not None:
                builder._process.send_signal(number)
        assert node.values("orders") == [[b"1", b"2", b"3"]]
