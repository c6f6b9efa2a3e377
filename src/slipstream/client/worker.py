"""A worker: handlers for topics, run until somebody says stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import Callable
from typing import TypeVar

import msgspec

from slipstream import handlers
from slipstream.api import RetryPolicyFields
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import InvalidArgument
from slipstream.client.route import Handler, Route
from slipstream.client.subscription import Subscription
from slipstream.outcome import Retry
from slipstream.program_log import log_to_stderr

log = logging.getLogger(__name__)

HandlerT = TypeVar("HandlerT", bound=Handler)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

LAST_WORDS_MS = 2_000
"""How long a worker that gives up tries to hand back what it has."""


_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")


class Worker:
    """Handlers for topics, and the loop that runs them.

    A handler gets a message. When it returns, the message is acked; when it raises, it is nacked with the exception as
    the reason, and comes again as its retry policy says. `raise Reject("why")` sends it to the dead letters at once,
    `raise Retry(delay_ms=…)` sets the time. Handlers are `async`, or ordinary functions, which run in threads.

    While a handler runs, the lease of its message is renewed. If it is lost all the same (the server could not be
    reached for longer than it lasts, and another worker has the message now), an `async` handler is cancelled.

    The first SIGTERM or SIGINT stops the fetching and lets the handlers finish, for `drain_timeout_ms` at most; then,
    or with the second signal, they are cancelled and their messages given back. A third ends the process as usual.

    Example:
        app = Worker("http://127.0.0.1:8080")

        @app.handler("tasks.enrich", group="enrichers", concurrency=16)
        async def enrich(message: Message) -> None:
            await store(message.json())

        app.run()
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        owner: str | None = None,
        client: AsyncClient | None = None,
        drain_timeout_ms: int = 30_000,
        poll_ms: int = 2_000,
    ) -> None:
        """`client`: one of your own settings, which you close yourself. `poll_ms`: how long a request waits for
        messages; a worker with nothing to do takes that long to stop."""
        self.client = client or AsyncClient(url, owner=owner)
        """For handlers that produce, or guard an effect with `once`."""
        self.drain_timeout_ms = drain_timeout_ms
        self.poll_ms = poll_ms
        self._is_own_client = client is None
        self._routes: list[Route] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._giving_up = asyncio.Event()

    def handler(
        self, topic: str, *, group: str, concurrency: int = 1, lease_ms: int = 10_000, retry: Retry | None = None
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a handler for a topic, which handles at most `concurrency` messages at a time.

        `retry` says how often and when failed messages are retried, where a message has no policy of its own. What it
        leaves out is as the group has it, or the topic: by default 25 attempts over almost ten hours.
        """
        if concurrency < 1:
            raise InvalidArgument("concurrency must be at least 1")
        if lease_ms < 3:
            raise InvalidArgument("lease_ms must be at least 3: it is renewed every third of that")
        if any((route.topic, route.group) == (topic, group) for route in self._routes):
            raise InvalidArgument(f"{topic} already has a handler for group {group}: raise its concurrency instead")

        policy = None if retry is None else _policy(retry)
        for what, name in (("topic", topic), ("group", group)):
            if not _NAME.match(name):
                raise InvalidArgument(f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : - (got {name[:40]!r})")

        def register(handler: HandlerT) -> HandlerT:
            if refusal := handlers.why_not(handler):
                raise InvalidArgument(refusal)
            self._routes.append(
                Route(
                    topic=topic,
                    group=group,
                    handler=handler,
                    concurrency=concurrency,
                    lease_ms=lease_ms,
                    retry=policy,
                )
            )
            return handler

        return register

    def run(self) -> None:
        """Work until a signal says stop. For the main thread of a program; `serve` is for those with a loop.

        Unless the program has configured logging, what the worker logs is written to stderr."""
        log_to_stderr()
        asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await self.serve()
        finally:
            self._leave_signals(loop)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stopping.is_set():
            log.info("%s: stopping; again to stop at once", number.name)
            self._stopping.set()
            return
        log.info("%s: stopping at once", number.name)
        self._giving_up.set()
        self._leave_signals(asyncio.get_running_loop())

    @staticmethod
    def _leave_signals(loop: asyncio.AbstractEventLoop) -> None:
        """From here on they end the process, as usual: a handler may have left a thread behind that never ends."""
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def stop(self) -> None:
        """As the first signal does; from any thread."""
        if self._loop is None:
            self._stopping.set()
        else:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def serve(self) -> None:
        """Works until `stop`, in the loop that runs, and returns when everything is handed back. Once only."""
        if not self._routes:
            raise InvalidArgument("this worker has no handlers: register one with @app.handler(topic, group=…)")
        self._loop = asyncio.get_running_loop()
        subscriptions = [Subscription(self.client, route, self._stopping, self.poll_ms) for route in self._routes]
        tasks = {asyncio.create_task(subscription.run()) for subscription in subscriptions}
        try:
            await _any(tasks, self._stopping)
            self._stopping.set()  # one that ended by itself has failed: the others are not left to work on alone
            await _all(tasks, self.drain_timeout_ms, self._giving_up)
            for subscription in subscriptions:
                subscription.give_up("the worker was stopped before the handler was done")
            await asyncio.wait(tasks, timeout=LAST_WORDS_MS / 1000)
        finally:
            self._loop = None
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            if self._is_own_client:
                await self.client.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def _policy(retry: Retry) -> RetryPolicyFields:
    if retry.delay_ms is not None or retry.args != ("",):
        raise InvalidArgument(
            "retry= of a handler takes max_attempts, backoff and max_backoff; a reason and a delay belong to a Retry "
            "that the handler raises"
        )
    fields = {
        "max_attempts": retry.max_attempts,
        "backoff_ms": retry.backoff_ms,
        "max_backoff_ms": retry.max_backoff_ms,
    }
    try:
        return msgspec.convert(fields, RetryPolicyFields)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"retry= of a handler: {error}") from error


async def _any(tasks: set[asyncio.Task[None]], event: asyncio.Event) -> None:
    """Returns when the event is set, or one of the tasks has ended."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _all(tasks: set[asyncio.Task[None]], timeout_ms: int, event: asyncio.Event) -> None:
    """Returns when all tasks have ended, the event is set, or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_ms / 1000):
            left = {task for task in tasks if not task.done()}
            while left and not event.is_set():
                await _any(left, event)
                left = {task for task in left if not task.done()}
