"""A load generator: N connections, each sending its next request when the last is answered.

It runs in a process of its own and prints one JSON line. `python -m bench.load '{"port": 8080, "topic": "t"}'`
A request that is answered with 429 is sent again after the pause that `Retry-After` names; the pause is part of the
latency of the request.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import re
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
    deferred: int
    """The number of answers 429: each is a request that was sent again."""
    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Tally:
    """The answers of all connections; those that arrive during the warm-up do not count."""

    def __init__(self, warmup_seconds: float, seconds: float) -> None:
        self.seconds = seconds
        self.counted_from = time.perf_counter() + warmup_seconds
        self.until = self.counted_from + seconds
        self.latencies: array[float] = array("d")
        self.errors = 0
        self.deferred = 0

    def count(self, sent: float, now: float) -> None:
        if self.counted_from <= now < self.until:
            self.latencies.append(now - sent)

    def fail(self, answer: bytes) -> None:
        if self.errors == 0:
            print(answer.decode(errors="replace")[:500], file=sys.stderr)
        self.errors += 1

    def result(self, messages_per_request: int = 1) -> LoadResult:
        return summarise(self.latencies, self.seconds, messages_per_request, self.errors, self.deferred)


_RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)


def retry_after_s(answer: bytes | bytearray) -> int:
    """Return the pause that a 429 asks for, in seconds; 0 for every other answer."""
    if answer[9:12] != b"429":
        return 0
    found = _RETRY_AFTER.search(answer)
    return int(found[1]) if found else 1


class Client(asyncio.Protocol):
    """One connection. An answer is small enough to arrive in one piece."""

    def __init__(self, requests: Iterator[bytes], tally: Tally) -> None:
        self.requests = requests
        self.tally = tally
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def send(self) -> None:
        self.sent = time.perf_counter()
        self.request = next(self.requests)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if pause_s := retry_after_s(data):
            self.tally.deferred += 1
            asyncio.get_running_loop().call_later(pause_s, self.transport.write, self.request)
            return
        if data[9:10] == b"2":
            self.tally.count(self.sent, now)
        else:
            self.tally.fail(data)
        if now < self.tally.until:
            self.send()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def run(load: Load) -> LoadResult:
    requests = cycle([_request(load) for _ in range(DIFFERENT)])
    loop = asyncio.get_running_loop()
    tally = Tally(load.warmup_seconds, load.seconds)
    clients = [Client(requests, tally) for _ in range(load.connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", load.port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))
    return tally.result()


def _request(load: Load) -> bytes:
    value = base64.b64encode(secrets.token_bytes(load.value_bytes)).decode()[: load.value_bytes]
    body = msgspec.json.encode({"topic": load.topic, "key": "user:1", "value": value})
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (load.path.encode(), load.port, len(body), body)
    )


def summarise(
    latencies: array[float], seconds: float, messages_per_request: int, errors: int, deferred: int
) -> LoadResult:
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)

    return LoadResult(
        requests=len(ordered),
        errors=errors,
        deferred=deferred,
        rate=round(len(ordered) * messages_per_request / seconds),
        p50_ms=at(0.5),
        p99_ms=at(0.99),
        p999_ms=at(0.999),
        max_ms=at(1.0),
    )


if __name__ == "__main__":
    gc.disable()
    print(msgspec.json.encode(uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Load)))).decode())
