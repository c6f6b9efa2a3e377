"""The full path: produce → stream → ack, one request each; a producer sends its next when its last is acked.

Runs in a process of its own and prints one JSON line, like `bench.load`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import deque
from typing import cast

import msgspec
import uvloop

from bench.load import Tally, retry_after_s


class FullPath(msgspec.Struct, kw_only=True):
    port: int
    topic: str
    value_bytes: int = 200
    connections: int = 64
    streams: int = 4
    seconds: float = 5.0


class Item(msgspec.Struct):
    partition: int
    offset: int
    key: str


class Requests(asyncio.Protocol):
    """A connection that sends one request after the other and reports each answer."""

    def __init__(self, path: FullPathRun) -> None:
        self.run = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def post(self, path: bytes, body: bytes) -> None:
        self.request = (
            b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (path, len(body), body)
        )
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if pause_s := retry_after_s(data):
            self.run.tally.deferred += 1
            asyncio.get_running_loop().call_later(pause_s, self.transport.write, self.request)
        else:
            self.answered(data)

    def answered(self, data: bytes) -> None:
        raise NotImplementedError


class Producer(Requests):
    def __init__(self, path: FullPathRun, key: str) -> None:
        super().__init__(path)
        self.key = key
        self.body = msgspec.json.encode({"topic": path.plan.topic, "key": key, "value": "x" * path.plan.value_bytes})
        self.sent = 0.0

    def send(self) -> None:
        self.sent = time.perf_counter()
        self.post(b"/v1/produce", self.body)

    def answered(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            self.run.tally.fail(data)


class Acker(Requests):
    """Takes the next item to ack as soon as it is free."""

    key = ""

    def take(self) -> None:
        if self.run.to_ack:
            owner, item = self.run.to_ack.popleft()
            self.key = item.key
            body = b'{"topic":"%b","group":"g","owner":"%b","partition":%d,"offset":%d}' % (
                self.run.plan.topic.encode(),
                owner,
                item.partition,
                item.offset,
            )
            self.post(b"/v1/ack", body)
        else:
            self.run.free.append(self)

    def answered(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 204"):
            self.run.acked(self.key)
        else:
            self.run.tally.fail(data)
        self.take()


class Stream(asyncio.Protocol):
    """One consumer; its items go to whichever acker is free."""

    def __init__(self, path: FullPathRun, owner: bytes) -> None:
        self.run = path
        self.owner = owner
        self.buffer = b""
        self.decode = msgspec.json.Decoder(Item).decode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        query = b"/v1/consume?topic=%b&group=g&owner=%b&lease_ms=60000" % (self.run.plan.topic.encode(), self.owner)
        cast("asyncio.Transport", transport).write(b"GET %b HTTP/1.1\r\nHost: bench\r\n\r\n" % query)

    def data_received(self, data: bytes) -> None:
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                self.run.to_ack.append((self.owner, self.decode(line)))
        while self.run.to_ack and self.run.free:
            self.run.free.popleft().take()


class FullPathRun:
    def __init__(self, plan: FullPath) -> None:
        self.plan = plan
        self.to_ack: deque[tuple[bytes, Item]] = deque()
        self.free: deque[Acker] = deque()
        self.tally = Tally(0, plan.seconds)
        self.producers: dict[str, Producer] = {}

    async def run(self) -> bytes:
        loop = asyncio.get_running_loop()

        async def connect(protocol: asyncio.Protocol) -> None:
            await loop.create_connection(lambda: protocol, "127.0.0.1", self.plan.port)

        for number in range(self.plan.streams):
            await connect(Stream(self, b"owner-%d" % number))
        for number in range(self.plan.connections):
            self.producers[f"k{number}"] = Producer(self, f"k{number}")
            acker = Acker(self)
            await connect(self.producers[f"k{number}"])
            await connect(acker)
            self.free.append(acker)
        self.tally = Tally(0, self.plan.seconds)
        for producer in self.producers.values():
            producer.send()
        await asyncio.sleep(self.plan.seconds)
        return msgspec.json.encode(self.tally.result())

    def acked(self, key: str) -> None:
        producer = self.producers[key]
        now = time.perf_counter()
        self.tally.count(producer.sent, now)
        if now < self.tally.until:
            producer.send()


if __name__ == "__main__":
    gc.disable()
    print(uvloop.run(FullPathRun(msgspec.json.decode(sys.argv[1], type=FullPath)).run()).decode())
