"""The console where tests can ask it: an application behind a port of this loop, or the command in a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import uvicorn
from starlette.types import ASGIApp

from slipstream.api import GroupStats, Stats, TopicStats
from slipstream.api.keys import KeyPlace
from slipstream.api.server import ServerCondition
from slipstream.console.sources import LogRecord, TopicLog
from tests.program import PATIENCE_S, Program

OURS = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "NATS_", "JOBS_", "SLIP_", "PIPELINE_", "CONSOLE_")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Its address, until the end of the `async with`."""
    config = uvicorn.Config(
        app, port=port, lifespan="off", log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
        assert not task.done(), "the server ended before it began"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


async def ask(url: str, method: str = "GET", **how: Any) -> tuple[int, Any, Mapping[str, str]]:
    """Status, JSON and headers."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **how) as answer:
        body = await answer.read()
        return answer.status, json.loads(body) if body else None, answer.headers


async def events(url: str, **headers: str) -> AsyncGenerator[tuple[str, Any], None]:
    """Of a stream of server-sent events: name and data, as they come."""
    given = {"Accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with aiohttp.ClientSession(read_bufsize=1 << 20) as session, session.get(url, headers=given) as answer:
        assert answer.status == 200, await answer.text()
        name = ""
        async for line in answer.content:
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                yield name, json.loads(text)


class Numbers:
    """A broker's numbers, as the test says: a source of stats that waits for them."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Stats | Exception] = asyncio.Queue()
        self.asked: list[int] = []
        """At which intervals, in turn."""
        self.why_not = ""
        self.keys: dict[str, list[KeyPlace]] = {}
        self.closed = False

    async def samples(self, interval_ms: int) -> AsyncGenerator[Stats, None]:
        self.asked.append(interval_ms)
        while True:
            told = await self.told.get()
            if isinstance(told, Exception):
                raise told
            yield told

    async def trouble(self) -> str:
        return self.why_not

    async def conditions(self) -> list[ServerCondition]:
        return []

    async def places(self, key: str) -> list[KeyPlace]:
        return self.keys.get(key, [])

    async def log_of(self, topic: str) -> TopicLog | None:
        return None

    async def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        raise AssertionError("there is no log")
        yield  # type: ignore[unreachable]

    async def close(self) -> None:
        self.closed = True


def stats(*topics: TopicStats, time_ms: int = 1_000_000, interval_ms: int = 1_000, **numbers: Any) -> Stats:
    groups = [group for topic in topics for group in topic.groups]
    usual = {
        "produced_per_s": 0.0,
        "delivered_per_s": 0.0,
        "acked_per_s": 0.0,
        "nacked_per_s": 0.0,
        "dead_lettered_per_s": 0.0,
        "lag": sum(group.lag for group in groups),
        "in_flight": sum(group.in_flight for group in groups),
        "dead_letters": sum(topic.dead_letters for topic in topics),
        "oldest_unfinished_age_ms": max((group.oldest_unfinished_age_ms for group in groups), default=0),
    }
    return Stats(time_ms=time_ms, interval_ms=interval_ms, topics=list(topics), **{**usual, **numbers})


def topic(name: str = "orders", *groups: GroupStats, dead_letters: int = 0, messages: int = 0) -> TopicStats:
    return TopicStats(name, messages, 0, 0.0, dead_letters, list(groups))


def group(name: str = "billing", **numbers: Any) -> GroupStats:
    usual: dict[str, Any] = {
        "lag": 0,
        "in_flight": 0,
        "delayed": 0,
        "consumers": 0,
        "paused": False,
        "finished_per_s": 0.0,
        "oldest_unfinished_age_ms": 0,
    }
    return GroupStats(name, **{**usual, **numbers})


# The command


class ConsoleProcess(Program):
    """`slipstream console` on a free port; `base` is its address."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        command = [sys.executable, "-m", "slipstream", "console", "--port", "0", *arguments]
        super().__init__(command, {**kept, "NO_COLOR": "1", **variables}, folder)
        self.client = httpx.Client(timeout=30, verify=False)
        if "SLIPSTREAM_PARTS" in variables:  # below `slipstream up`: the address is the broker's, and not logged
            self.base = f"http://127.0.0.1:{arguments[-1]}"
            self._until_it_listens(int(arguments[-1]))
        else:
            self.base = self.wait_for(r"the console is at (http://.*?)/?$")[1]

    def _until_it_listens(self, port: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                return
            time.sleep(0.02)
        raise AssertionError(f"it does not listen: {self.said}")

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self.client.get(self.base + path, **how)

    def request(self, method: str, path: str, body: Any = None, **how: Any) -> httpx.Response:
        return self.client.request(method, self.base + path, json=body, **how)

    def overview(self) -> Any:
        return self.get("/v2/overview").json()["overview"]

    def until(self, path: str, question: Any) -> Any:
        """Asks again and again, until what is answered will do."""
        deadline = time.monotonic() + 60
        while not question(found := self.get(path).json()):
            assert time.monotonic() < deadline, f"{path} still says {found}\n{self.said}"
            time.sleep(0.05)
        return found

    def kill(self) -> None:
        self.client.close()
        super().kill()


@contextlib.contextmanager
def console(folder: Path, *arguments: str, **variables: str) -> Iterator[ConsoleProcess]:
    started = ConsoleProcess(folder, *arguments, **variables)
    try:
        yield started
    finally:
        started.kill()
