"""A real `slipstream serve` in its own process, and the small HTTP client the tests talk to it with."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.forked import Forked


class ServerProcess:
    """Started on a free port; `base` is its address once `start` has returned."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.arguments = arguments
        self.port = 0
        self.process: Forked | None = None
        self.client = httpx.Client(timeout=10, verify=False)
        self.log: list[str] = []
        self._logged = threading.Condition()
        self._is_listening = False
        self._held: socket.socket | None = None

    @classmethod
    def attached(cls, port: int, data: Path) -> Self:
        """Return a server that another process started, and that only that process ends."""
        server = cls(data)
        server.port = port
        return server

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens; raises with its log if it ends instead."""
        command = [sys.executable, "-m", "slipstream", "serve", "--port", str(self.port), "--data", str(self.data)]
        self.process = Forked(
            [*command, *self.arguments],
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM_")},
        )
        self._is_listening = False
        listening = threading.Event()
        threading.Thread(target=self._read_log, args=(self.process, listening), daemon=True).start()
        assert listening.wait(30), "the server neither listened nor ended within 30 s"
        if not self._is_listening:
            raise AssertionError("the server did not start:\n" + "".join(self.log))
        self._let_go()

    def _read_log(self, process: Forked, listening: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                with self._logged:
                    self.log.append(line)
                    self._logged.notify_all()
                found = re.search(r"listening on http://[^ ]*:(\d+)", line)
                if found:
                    self.port = int(found[1])
                    self._is_listening = True
                    listening.set()
        listening.set()

    def await_log(self, text: str) -> None:
        """Returns when a line with this text has been logged."""
        with self._logged:
            found = self._logged.wait_for(lambda: any(text in line for line in self.log), 30)
        assert found, f"nobody logged {text!r}:\n" + "".join(self.log)

    def kill(self) -> None:
        """As a crash would: no warning, no cleaning up."""
        self._end(signal.SIGKILL)
        self._let_go()
        self.client.close()

    def crash(self) -> None:
        self._end(signal.SIGKILL)
        self._hold()

    def stop(self) -> int:
        """Politely; returns the exit code."""
        code = self._end(signal.SIGTERM)
        self._hold()
        return code

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)

    def _hold(self) -> None:
        """The port, so that nobody else is given it before it is started again. Bound as the server binds it, and not
        listening, it keeps neither the server from it nor clients from being refused."""
        if self._held is None and self.port:
            self._held = socket.socket()
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind(("127.0.0.1", self.port))

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def restart(self) -> None:
        """Kills it and starts it again on the same port and directory."""
        self.crash()
        self.start()

    # Requests

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.client.get(self.base + path, **arguments)

    def post(self, path: str, body: Any = None, **arguments: Any) -> httpx.Response:
        if body is not None:
            arguments["content"] = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(self.base + path, **arguments)

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return self.client.request(method, self.base + path, **arguments)

    def topics(self) -> list[str]:
        names: list[str] = self.get("/v1/topics").json()["topics"]
        return names

    def is_well(self) -> bool:
        """Whether it still answers, on a connection of its own."""
        return bool(httpx.get(self.base + "/v1/healthz", timeout=10, verify=False).json() == {"status": "ok"})

    def create(self, name: str, partitions: int = 1) -> None:
        response = self.post("/v1/topics", {"name": name, "partitions": partitions})
        assert response.status_code == 201, response.text

    def produce(self, topic: str, value: str, key: str = "", **envelope: Any) -> httpx.Response:
        body: dict[str, Any] = {"topic": topic, "value": value, "key": key}
        if envelope:
            body["envelope"] = envelope
        return self.post("/v1/produce", body)

    def ack(self, topic: str, item: dict[str, Any], group: str = "g", owner: str = "o") -> httpx.Response:
        return self.post("/v1/ack", self._settlement(topic, item, group, owner))

    def nack(
        self, topic: str, item: dict[str, Any], reason: str = "", group: str = "g", owner: str = "o"
    ) -> httpx.Response:
        return self.post("/v1/nack", self._settlement(topic, item, group, owner) | {"reason": reason})

    def _settlement(self, topic: str, item: dict[str, Any], group: str, owner: str) -> dict[str, Any]:
        place = {"partition": item["partition"], "offset": item["offset"]}
        return {"topic": topic, "group": group, "owner": owner, **place}

    @contextlib.contextmanager
    def consume(
        self, topic: str, group: str = "g", owner: str = "o", lease_ms: int = 60_000, prefetch: int = 0
    ) -> Iterator[Iterator[Any]]:
        """Open a stream: iterate over it for items; each waits at most 10 s."""
        query = {"topic": topic, "group": group, "owner": owner, "lease_ms": str(lease_ms), "prefetch": str(prefetch)}
        with self.client.stream("GET", self.base + "/v1/consume", params=query) as response:
            if response.status_code != 200:
                raise AssertionError(f"{response.status_code} {response.read().decode()}")
            yield (json.loads(line) for line in response.iter_lines() if line)

    def take(self, topic: str, count: int = 1, group: str = "g", owner: str = "o", lease_ms: int = 60_000) -> list[Any]:
        """Return the next `count` items of a group, from a stream that is closed again; the leases stay."""
        with self.consume(topic, group, owner, lease_ms, prefetch=1_000) as items:
            return list(itertools.islice(items, count))

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics; NaN where there is none."""
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return math.nan

    def await_metric(self, expected: float, name: str, **labels: str) -> None:
        """Asks until the value is there: what happens when a client goes away is told to nobody else."""
        deadline = time.monotonic() + 30
        while (found := self.metric(name, **labels)) != expected:
            assert time.monotonic() < deadline, f"{name} {labels} is {found}, not {expected}"
            time.sleep(0.01)

    def problem(self) -> dict[str, Any]:
        """Return the worst problem that the console's overview shows, as soon as there is one."""
        headers = {"Accept": "text/event-stream"}
        with self.client.stream("GET", self.base + "/v2/overview", headers=headers) as response:
            for line in response.iter_lines():
                if line.startswith("data: ") and (problems := json.loads(line[6:]).get("problems")):
                    return dict(problems[0])
        raise AssertionError("the overview has ended without a problem")

    def connect(self, timeout: float = 10) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data: bytes, *, finish: bool = True, timeout: float = 10) -> bytes:
        """Sends bytes as they are and returns everything that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            if finish:
                connection.shutdown(socket.SHUT_WR)
            received = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while chunk := connection.recv(65536):
                    received += chunk
            return received
