"""The process that builds segments, and what happens to the broker without it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from slipstream.store.build_process import ProcessBuilder
from tests.store.node import Node


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
