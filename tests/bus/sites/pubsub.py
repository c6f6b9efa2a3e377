"""Google Pub/Sub, as Google's own fake of it: `pubsub_server`."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from typing import Any, Self

import pytest

from tests.bus.sites.pubsub_server.build import Missing, server
from tests.bus.sites.site import Site, free_port

PROJECT = "tests"


class PubSubSite(Site):
    driver = "pubsub"
    orders = False  # it hands out from a Go map, which has no order; the real service orders messages with the same key
    counts_across_processes = (
        False  # it leaves delivery_attempt at 0; the real service counts beside a dead-letter policy
    )
    keeps_before_subscribed = False  # a subscription begins when it is made, here and at Google
    reads = False  # neither has a log
    dedupes = False  # neither knows ids but its own
    has_partitions = False
    limits_bytes = False
    keeps_for_ever = False  # 31 days
    adjusts_retention = False  # it refuses that; Google does not

    def __init__(self) -> None:
        try:
            program = server()
        except Missing as missing:
            pytest.skip(str(missing))
        self.port = free_port()
        # It ends with its stdin: when this process is gone, by whatever way, so is the server.
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            [program, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self._await("listening")
        self._is_started = True

    @classmethod
    def attached(cls, port: int) -> Self:
        """Return the site of a server that another process started and ends."""
        site = cls.__new__(cls)
        site.port, site._process = port, None
        return site

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self) -> dict[str, Any]:
        return {"driver": "pubsub", "pubsub_emulator_host": self.address, "pubsub_project": PROJECT}

    def environment(self) -> dict[str, str]:
        return {
            "MESSAGE_BUS_DRIVER": "pubsub",
            "PUBSUB_EMULATOR_HOST": self.address,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
        }

    def stop_server(self) -> None:
        """Only its port and its connections: all that it knows is in memory, and would be gone (`main.go`)."""
        self._signal(signal.SIGUSR1)
        self._await("stopped")
        self._is_started = False

    def start_server(self) -> None:
        self._signal(signal.SIGUSR2)
        self._await("listening")
        self._is_started = True

    def ensure_started(self) -> None:
        if not self._is_started:
            self.start_server()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "this server is for all tests"
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line.strip())
        self._lines.put("ended")

    def _await(self, wanted: str) -> None:
        line = self._lines.get(timeout=30)
        assert line == wanted, f"the Pub/Sub server says {line!r}, not {wanted!r}"
