"""The client, for programs without an event loop."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from slipstream.client.async_client import AsyncClient
from slipstream.client.message import AsyncMessage, SyncMessage
from slipstream.client.portal import LoopThread, Portal
from slipstream.client.redrive import SyncRedrive
from slipstream.client.sync_producer import SyncProducer

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def _same(portal: Portal, result: R) -> R:
    return result


def _bound(portal: Portal, messages: list[AsyncMessage]) -> list[SyncMessage]:
    return [SyncMessage(portal, message) for message in messages]


# Each takes a method of AsyncClient and makes the one of Client from it, with the same arguments.


def _waits(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]], result: Callable[[Portal, R], S]
) -> Callable[Concatenate[Client, P], S]:
    def call(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return result(client._portal, client._portal.run(method(client._client, *args, **kwargs)))

    return _named(call, method)


def _calls(
    method: Callable[Concatenate[AsyncClient, P], R], result: Callable[[Portal, R], S]
) -> Callable[Concatenate[Client, P], S]:
    def call(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return result(client._portal, method(client._client, *args, **kwargs))

    return _named(call, method)


def _named(call: Callable[P, R], method: Callable[..., object]) -> Callable[P, R]:
    """With the name, the documentation and, for who asks with `help`, the arguments of the original."""
    functools.update_wrapper(call, method)
    return call


def _iterated(portal: Portal, items: AsyncGenerator[R, None]) -> Iterator[R]:
    return portal.iterated(items)


def _flattened(portal: Portal, pages: AsyncGenerator[list[R], None]) -> Iterator[R]:
    """Page by page through the thread, for it takes as long for one as for a thousand."""
    for page in portal.iterated(pages):
        yield from page


def _entered(portal: Portal, context: AbstractAsyncContextManager[R]) -> AbstractContextManager[R]:
    return portal.entered(context)


class Client:
    """`AsyncClient`, method by method, where nothing is awaited: it has an event loop in a thread of its own, and each
    call waits for what the other client does there. Iterators and context managers are plain ones; futures are those
    of `concurrent.futures`. Threads may share one.

    Example:
        with Client("http://127.0.0.1:8080") as client:
            client.create_topic("orders")
            client.produce("orders", "two books", key="user:1")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        owner: str | None = None,
        timeout_ms: int = 10_000,
        retry_for_ms: int = 30_000,
        backoff_ms: int = 50,
        backoff_ms_max: int = 5_000,
        max_connections: int = 100,
    ) -> None:
        self._client = AsyncClient(
            url,
            owner=owner,
            timeout_ms=timeout_ms,
            retry_for_ms=retry_for_ms,
            backoff_ms=backoff_ms,
            backoff_ms_max=backoff_ms_max,
            max_connections=max_connections,
        )
        self._portal = LoopThread()

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def owner(self) -> str:
        return self._client.owner

    create_topic = _waits(AsyncClient.create_topic, _same)
    topics = _waits(AsyncClient.topics, _same)
    topic = _waits(AsyncClient.topic, _same)
    change_topic = _waits(AsyncClient.change_topic, _same)
    delete_topic = _waits(AsyncClient.delete_topic, _same)

    produce = _waits(AsyncClient.produce, _same)
    produce_batch = _waits(AsyncClient.produce_batch, _same)
    producer = _calls(AsyncClient.producer, SyncProducer)

    stage = _waits(AsyncClient.stage, _same)
    unstage = _waits(AsyncClient.unstage, _same)
    commit = _waits(AsyncClient.commit, _same)
    writer_sequence = _waits(AsyncClient.writer_sequence, _same)

    fetch = _waits(AsyncClient.fetch, _bound)
    ack = _waits(AsyncClient.ack, _same)
    nack = _waits(AsyncClient.nack, _same)
    extend = _waits(AsyncClient.extend, _same)
    once = _calls(AsyncClient.once, _entered)

    read = _waits(AsyncClient.read, _same)
    scan = _named(_calls(AsyncClient._scan_pages, _flattened), AsyncClient.scan)
    read_arrow = _waits(AsyncClient.read_arrow, _same)
    offsets = _waits(AsyncClient.offsets, _same)
    segments = _waits(AsyncClient.segments, _same)

    groups = _waits(AsyncClient.groups, _same)
    group = _waits(AsyncClient.group, _same)
    seek = _waits(AsyncClient.seek, _same)
    pause = _waits(AsyncClient.pause, _same)
    resume = _waits(AsyncClient.resume, _same)
    set_group_retry = _waits(AsyncClient.set_group_retry, _same)
    forget_group = _waits(AsyncClient.forget_group, _same)

    message_state = _waits(AsyncClient.message_state, _same)
    retry_now = _waits(AsyncClient.retry_now, _same)
    reject_messages = _waits(AsyncClient.reject_messages, _same)
    discard_messages = _waits(AsyncClient.discard_messages, _same)
    extend_messages = _waits(AsyncClient.extend_messages, _same)
    release_messages = _waits(AsyncClient.release_messages, _same)
    release_owner = _waits(AsyncClient.release_owner, _same)

    dead_letters = _calls(AsyncClient.dead_letters, _iterated)
    dead_letter = _waits(AsyncClient.dead_letter, _same)
    redrive = _waits(AsyncClient.redrive, SyncRedrive)
    redrives = _waits(AsyncClient.redrives, _same)
    redrive_of = _waits(AsyncClient.redrive_of, SyncRedrive)

    events = _calls(AsyncClient.events, _iterated)

    def close(self) -> None:
        """Ends the connections. Producers that were not closed are, so that nothing they hold is lost; raises as they
        do."""
        if self._portal.closed:
            return
        try:
            for producer in list(self._portal.producers):
                producer.hand_over()
            self._portal.run(self._client.close())
        finally:
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
