"""Many messages a request: batch produce, Redis Streams pipelined by as many for comparison, and batch fetch + ack.

Runs in a process of its own and prints one JSON line, like `bench.load`; rates count messages, latencies requests.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import secrets
import sys
import time
from array import array
from itertools import cycle
from typing import Literal, TypeAlias, cast

import msgspec
import uvloop

from bench.load import LoadResult, Tally, retry_after_s, summarise

Kind: TypeAlias = Literal["json", "msgpack", "redis", "drain"]

REDIS_OK = b"$"
DIFFERENT = 64
"""Requests in turn, each with its own random values."""


class Batches(msgspec.Struct, kw_only=True):
    port: int
    topic: str
    kind: Kind
    batch: int = 100
    value_bytes: int = 200
    connections: int = 16
    seconds: float = 5.0
    warmup_seconds: float = 0.5
    messages: int = 0
    """To be drained."""


class Pieces(asyncio.Protocol):
    """A connection whose answers may come in pieces."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.request = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def write(self, request: bytes) -> None:
        self.request = request
        self.transport.write(request)

    def write_again(self, pause_s: int) -> None:
        asyncio.get_running_loop().call_later(pause_s, self.transport.write, self.request)

    def http_answer(self) -> tuple[bytes, bytes] | None:
        """Take the head and the body of an answer out of the buffer; None while a part of it is missing."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self.buffer) < end + 4 + length:
            return None
        body = bytes(self.buffer[end + 4 : end + 4 + length])
        self.buffer.clear()
        return head, body


class Producer(Pieces):
    """Sends its next request when the last is answered."""

    def __init__(self, plan: Batches, requests: list[bytes], tally: Tally) -> None:
        super().__init__()
        self.plan = plan
        self.requests = cycle(requests)
        self.tally = tally

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send()

    def send(self) -> None:
        self.sent = time.perf_counter()
        self.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        answer = self.redis_answer() if self.plan.kind == "redis" else self.http_answer()
        if answer is None:
            return
        head, _ = answer
        now = time.perf_counter()
        if pause_s := retry_after_s(head):
            self.tally.deferred += 1
            self.write_again(pause_s)
            return
        if head[9:10] == b"2" or head == REDIS_OK:
            self.tally.count(self.sent, now)
        else:
            self.tally.fail(b"\r\n".join(answer))
        if now < self.tally.until:
            self.send()
        else:
            self.transport.close()

    def redis_answer(self) -> tuple[bytes, bytes] | None:
        if self.buffer[:1] == b"-":
            error = bytes(self.buffer)
            self.buffer.clear()
            return error, b""
        # Each XADD is answered with a bulk string: "$15\r\n1700000000000-0\r\n".
        if self.buffer.count(b"\r\n") < 2 * self.plan.batch:
            return None
        self.buffer.clear()
        return REDIS_OK, b""


def requests_for(plan: Batches) -> list[bytes]:
    return [_request(plan) for _ in range(DIFFERENT)]


def _request(plan: Batches) -> bytes:
    values = [base64.b64encode(secrets.token_bytes(plan.value_bytes))[: plan.value_bytes] for _ in range(plan.batch)]
    if plan.kind == "redis":
        head = b"*5\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$1\r\nv\r\n" % (len(plan.topic), plan.topic.encode())
        return b"".join(head + b"$%d\r\n%b\r\n" % (len(value), value) for value in values)
    messages: list[dict[str, object]]
    if plan.kind == "msgpack":
        messages = [{"key": b"user:1", "value": value} for value in values]
        body = msgspec.msgpack.encode({"topic": plan.topic, "messages": messages})
        return post(b"/v2/produce", body, b"application/msgpack")
    messages = [{"key": "user:1", "value": value.decode()} for value in values]
    return post(b"/v2/produce", msgspec.json.encode({"topic": plan.topic, "messages": messages}))


def post(path: bytes, body: bytes, media_type: bytes = b"application/json") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        path,
        media_type,
        len(body),
        body,
    )


class Fetched(msgspec.Struct):
    partition: int
    offset: int


class FetchAnswer(msgspec.Struct):
    messages: list[Fetched]


class Drainer(Pieces):
    """Fetches a batch, acks it, and so on until all are done."""

    decode = msgspec.msgpack.Decoder(FetchAnswer).decode

    def __init__(self, plan: Batches, name: str, latencies: array[float], left: list[int]) -> None:
        super().__init__()
        self.plan = plan
        self.fetch = post(
            b"/v2/fetch",
            msgspec.msgpack.encode(
                {"topic": plan.topic, "group": "g", "owner": name, "max_messages": plan.batch, "lease_ms": 60_000}
            ),
            b"application/msgpack",
        )
        self.name = name
        self.latencies = latencies
        self.left = left
        self.acking = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.sent = time.perf_counter()
        self.write(self.fetch)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        answer = self.http_answer()
        if answer is None:
            return
        head, body = answer
        if pause_s := retry_after_s(head):
            self.write_again(pause_s)
            return
        if head[9:10] != b"2":
            self.done.set_exception(RuntimeError(f"the drain was refused: {head.decode()} {body[:500].decode()}"))
            self.transport.close()
            return
        if self.acking:
            self.latencies.append(time.perf_counter() - self.sent)
            self.left[0] -= self.acking
            self.acking = 0
        else:
            places = self.decode(body).messages
            self.acking = len(places)
            if places:
                request = {"topic": self.plan.topic, "group": "g", "owner": self.name, "messages": places}
                self.write(post(b"/v2/ack", msgspec.msgpack.encode(request), b"application/msgpack"))
                return
        if self.left[0] > 0:
            self.sent = time.perf_counter()
            self.write(self.fetch)
        else:
            self.transport.close()


async def run(plan: Batches) -> LoadResult:
    if plan.kind == "drain":
        return await _drain(plan)
    requests = requests_for(plan)
    tally = Tally(plan.warmup_seconds, plan.seconds)
    await _connect(plan, [Producer(plan, requests, tally) for _ in range(plan.connections)])
    return tally.result(plan.batch)


async def _drain(plan: Batches) -> LoadResult:
    latencies: array[float] = array("d")
    left = [plan.messages]
    started = time.perf_counter()
    await _connect(plan, [Drainer(plan, f"w{n}", latencies, left) for n in range(plan.connections)])
    seconds = time.perf_counter() - started
    result = summarise(latencies, seconds, plan.batch, errors=0, deferred=0)
    return msgspec.structs.replace(result, rate=round(plan.messages / seconds))


async def _connect(plan: Batches, clients: list[Producer] | list[Drainer]) -> None:
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", plan.port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))


if __name__ == "__main__":
    gc.disable()
    print(msgspec.json.encode(uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Batches)))).decode())
