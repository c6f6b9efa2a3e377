"""A cluster of three real NATS servers, one of which can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from tests.bus.sites.nats import BINARY
from tests.bus.sites.site import free_port

SIZE = 3


class NatsCluster:
    """Servers n1 to n3, with JetStream."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="slipstream-nats-cluster-"))
        self._ports = {f"n{number}": free_port() for number in range(1, SIZE + 1)}
        self._routes = {name: free_port() for name in self._ports}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, *names: str) -> str:
        """Return the addresses of these servers; without names, of all."""
        return ",".join(f"nats://127.0.0.1:{self._ports[name]}" for name in names or self._ports)

    def settings(self, **given: Any) -> dict[str, Any]:
        return {"driver": "nats", "nats_url": self.url(), "nats_replicas": SIZE, **given}

    def start(self, *names: str) -> None:
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in self._routes.values())
        for name in names or self._ports:
            command = [str(BINARY), "-js", "-a", "127.0.0.1", "-p", str(self._ports[name]), "--name", name]
            command += ["-sd", str(self._directory / name), "--cluster_name", "c", "--routes", routes]
            command += ["--cluster", f"nats://127.0.0.1:{self._routes[name]}"]
            with (self._directory / f"{name}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    async def ready(self) -> None:
        """Return when JetStream of the cluster has a leader that takes orders."""
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(NatsError, OSError, TimeoutError):
                    if await self._leader() is not None:
                        return
                await asyncio.sleep(0.05)

    async def _leader(self) -> str | None:
        """Return the server that answers for the cluster: it has told all of them by then."""
        client = Client()
        await client.connect(servers=self.url().split(","), max_reconnect_attempts=1, connect_timeout=1)
        try:
            info = await client.jetstream().account_info()
            return "" if info is not None else None
        finally:
            await client.close()

    async def leader_of(self, stream: str, consumer: str = "") -> str:
        """Return the server that leads a stream, or one of its consumers."""
        client = Client()
        await client.connect(servers=self.url().split(","))
        try:
            js = client.jetstream()
            info = await (js.consumer_info(stream, consumer) if consumer else js.stream_info(stream))
            assert info.cluster is not None
            return str(info.cluster.leader)
        finally:
            await client.close()

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        shutil.rmtree(self._directory)
