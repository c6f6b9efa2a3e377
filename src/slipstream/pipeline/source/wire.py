"""The way to a server, for who does not await: requests of the client's transport, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from slipstream.api import ARROW, ReadQuery
from slipstream.client.part import topic_path
from slipstream.client.portal import LoopThread
from slipstream.client.retry import Repeat, Retries
from slipstream.client.transport import Transport, nonsense

T = TypeVar("T")

TIMEOUT_MS = 30_000
RETRIES = Retries(for_ms=30_000)
_IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


class ArrowPage(msgspec.Struct, frozen=True):
    batches: list[pa.RecordBatch]
    next_offset: int
    end_offset: int
    incarnation: str


class Wire:
    """One server."""

    def __init__(self, url: str) -> None:
        self._transport = Transport(url, TIMEOUT_MS, RETRIES, connections=4)
        self._portal = LoopThread()

    def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        repeat: Repeat = Repeat.SAFE,
        *,
        body: object = None,
        query: msgspec.Struct | None = None,
        wait_ms: int = 0,
    ) -> T:
        return self._run(
            lambda: self._transport.call(method, path, answer, repeat, body=body, query=query, wait_ms=wait_ms)
        )

    def read(self, topic: str, query: ReadQuery) -> ArrowPage:
        path = topic_path(topic, "messages")
        answer = self._run(lambda: self._transport.ask("GET", path, Repeat.SAFE, query=query, accept=ARROW))
        try:
            with pa.ipc.open_stream(answer.body, options=_IN_THIS_THREAD) as reader:
                batches = list(reader)
            return ArrowPage(
                batches,
                next_offset=int(answer.headers["Slipstream-Next-Offset"]),
                end_offset=int(answer.headers["Slipstream-End-Offset"]),
                incarnation=answer.headers["Slipstream-Incarnation"],
            )
        except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
            raise nonsense(f"GET {path}", error) from error

    def close(self) -> None:
        if not self._portal.closed:
            self._run(self._transport.close)
            self._portal.close()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal.run(work())
