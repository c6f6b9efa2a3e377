"""A load generator: N connections, each sending its next request when the last is answered.

Runs in a process of its own and prints one JSON line. `python -m bench.load '{"port": 8080, "topic": "t"}'`
"""

from __future__ import annotations

import asyncio
import base64
import gc
import secrets
import sys
import time
from array import array
from collections.abc import Iterator
from itertools import cycle
from typing import cast

import msgspec
import uvloop

DIFFERENT = 4_096
"""Values in turn, all random: the same one again and again would be compressed to nothing on disk."""


class Load(msgspec.Struct, kw_only=True):
    port: int
    topic: str
    path: str = "/v1/produce"
    value_bytes: int = 200
    connections: int = 64
    seconds: float = 5.0
    warmup_seconds: float = 0.5


class LoadResult(msgspec.Struct):
    requests: int
    errors: int
    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Client(asyncio.Protocol):
    """One connection. Answers are told apart by their status line; they never come in pieces this small."""

    def __init__(self, requests: Iterator[bytes], latencies: array[float], errors: list[bytes], until: float) -> None:
        self.requests = requests
        self.latencies = latencies
        self.errors = errors
        self.until = until
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.sent = time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.latencies.append(now - self.sent)
        if data[9:10] != b"2":
            self.errors.append(data)
        if now < self.until:
            self.sent = now
            self.transport.write(next(self.requests))
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def run(load: Load) -> LoadResult:
    requests = [_request(load) for _ in range(DIFFERENT)]
    await _burst(load, cycle(requests), load.warmup_seconds)
    latencies, errors, seconds = await _burst(load, cycle(requests), load.seconds)
    return summarise(latencies, len(errors), seconds)


def _request(load: Load) -> bytes:
    value = base64.b64encode(secrets.token_bytes(load.value_bytes)).decode()[: load.value_bytes]
    body = msgspec.json.encode({"topic": load.topic, "key": "user:1", "value": value})
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (load.path.encode(), load.port, len(body), body)
    )


async def _burst(load: Load, requests: Iterator[bytes], seconds: float) -> tuple[array[float], list[bytes], float]:
    loop = asyncio.get_running_loop()
    latencies: array[float] = array("d")
    errors: list[bytes] = []
    started = time.perf_counter()
    clients = [Client(requests, latencies, errors, started + seconds) for _ in range(load.connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", load.port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))
    if errors:
        print(errors[0].decode(errors="replace")[:500], file=sys.stderr)
    return latencies, errors, time.perf_counter() - started


def summarise(latencies: array[float], errors: int, seconds: float) -> LoadResult:
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)

    return LoadResult(
        requests=len(ordered),
        errors=errors,
        rate=round(len(ordered) / seconds),
        p50_ms=at(0.5),
        p99_ms=at(0.99),
        p999_ms=at(0.999),
        max_ms=at(1.0),
    )


if __name__ == "__main__":
    gc.disable()
    print(msgspec.json.encode(uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Load)))).decode())
