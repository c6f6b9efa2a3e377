"""The bus: what an application publishes to and subscribes at, whatever engine is behind it."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import functools
import logging
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, Unpack

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from slipstream import handlers
from slipstream.bus.attributes import Attributes, encodable, normalize
from slipstream.bus.contract import Data, Handler
from slipstream.bus.dead_letters import DeadLetters
from slipstream.bus.draft import Draft
from slipstream.bus.drivers import Driver, Outgoing, Stored, TopicInfo
from slipstream.bus.errors import BusClosed, BusError, InvalidArgument, PublishFailed
from slipstream.bus.metrics import metrics_in
from slipstream.bus.names import check_name, dead_letter_topic, literal_start
from slipstream.bus.options import OptionFields, SubscribeOptions, seconds
from slipstream.bus.settings import BusSettings
from slipstream.bus.subscription import Subscription
from slipstream.outcome import Duration

log = logging.getLogger(__name__)

T = TypeVar("T")

LAG_UNKNOWN_S = 0.25
"""Asked again so soon where the engine does not know the group yet."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)

Counting: TypeAlias = Callable[[str, float, "asyncio.Future[str]"], None]
"""Takes note of what became of a message: its topic, when it was posted, and the future."""


class Bus:
    """Publishes and subscribes on the engine that the settings name. Made by `open_bus`; belongs to one event loop.

    Delivery is at least once: a message is repeated until some handler of each group has returned, so handlers must
    bear to see one twice.
    """

    def __init__(self, settings: BusSettings, driver: Driver, registry: CollectorRegistry | None = None) -> None:
        self.settings = settings
        self.registry = registry
        """Where its metrics are, and those of what stands on it; None is Prometheus' usual one."""
        self._driver = driver
        self._metrics = metrics_in(registry)
        self._subscriptions: set[Subscription] = set()
        self._pending: set[asyncio.Future[Any]] = set()
        self._settled = asyncio.Event()
        self._failed = 0
        self._first_failure: BaseException | None = None
        self._closing: asyncio.Future[None] | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._published: dict[str, Any] = {}
        self._opened = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._subscribed = asyncio.Event()

    @property
    def driver(self) -> str:
        return self._driver.name

    @property
    def native(self) -> Any:
        """The engine's own client, for what the bus does not offer. docs/bus.md says what it is on each driver."""
        return self._driver.native

    @property
    def trouble(self) -> str:
        """Why messages do not come, in words, as long as they cannot: the engine is away, say. "" where all is well, as
        far as the driver can tell. Nothing has to be done about it, the bus tries on; it is for health checks."""
        return next((trouble for each in self._subscriptions if (trouble := each.trouble)), "")

    async def open(self) -> None:
        if self._opened:
            raise BusError("this bus was opened before: call open_bus() for another")
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        await self._driver.open()
        self._opened = True
        log.info("%s: the bus is open, with prefix %r", self.driver, self.settings.prefix)
        if self.settings.lag_interval_ms:
            self._sampling = asyncio.create_task(self._sample_lags())

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._subscriptions)} subscriptions"
        return f"<Bus {self.driver}, {state}>"

    # Publishing

    async def publish(
        self,
        topic: str,
        data: Data,
        attributes: Attributes | None = None,
        key: str | None = None,
        *,
        message_id: str | None = None,
    ) -> str:
        """Returns when the engine has the message safely, with its id; raises PublishFailed or another BusError.

        Messages with the same `key` keep their order. A second message with the same `message_id` is not stored, where
        the engine can tell.

        Example:
            await bus.publish("orders", '{"books": 2}', {"customerId": 17}, key="user:1")
        """
        return await (await self._post(topic, data, attributes, key, message_id, self._count))

    async def send(
        self,
        topic: str,
        data: Data,
        attributes: Attributes | None = None,
        key: str | None = None,
        *,
        message_id: str | None = None,
    ) -> asyncio.Future[str]:
        """`publish` for many messages: returns when there is room for it, with a future of its id. Nobody has to look
        at the future: `flush` and `close` raise PublishFailed if a message was not stored.

        Example:
            for order in orders:
                await bus.send("orders", order)
            await bus.flush()
        """
        return await self._post(topic, data, attributes, key, message_id, self._count_sent)

    async def publish_all(self, topic: str, drafts: Sequence[Draft]) -> None:
        """`publish` for many at once: returns when the engine has all of them safely; raises PublishFailed, or another
        BusError, if it has not, though some may be stored. Much cheaper than one by one on the embedded broker.

        Example:
            await bus.publish_all("orders", [Draft("two books", key="user:1"), Draft("a map", key="user:2")])
        """
        self._check_open()
        name = self._name(topic)
        messages = list(_outgoing(name, drafts))
        if not messages:
            return
        await self._room()
        began = time.perf_counter()
        try:
            future = await self._driver.post_all(messages)
        except BusError:
            self._metrics.messages.labels(self.driver, topic, "refused").inc(len(messages))
            raise
        self._pending.add(future)
        future.add_done_callback(functools.partial(self._count, topic, began, number=len(messages)))
        await future

    async def flush(self) -> None:
        """Returns when the engine has everything published before; raises PublishFailed if a message that was given to
        `send` since the last time was not stored."""
        if self._pending:
            await asyncio.wait(set(self._pending))
        if self._failed:
            count, first = self._failed, self._first_failure
            self._failed, self._first_failure = 0, None
            raise PublishFailed(f"{count} messages were not stored: {first}", count=count) from first

    async def _post(
        self,
        topic: str,
        data: Data,
        attributes: Attributes | None,
        key: str | None,
        message_id: str | None,
        count: Counting,
    ) -> asyncio.Future[str]:
        self._check_open()
        name = self._name(topic)
        payload = data if type(data) is bytes else _bytes(data)
        message = Outgoing(name, payload, normalize(attributes), _text("key", key), _text("message_id", message_id))
        await self._room()
        return await self._track(topic, message, count)

    async def _room(self) -> None:
        while len(self._pending) >= self.settings.max_buffered_messages:
            self._settled.clear()
            await self._settled.wait()
            self._check_open()  # it may have been closed meanwhile

    async def _track(self, topic: str, message: Outgoing, count: Counting) -> asyncio.Future[str]:
        began = time.perf_counter()
        try:
            future = await self._driver.post(message)
        except BusError:
            self._metrics.messages.labels(self.driver, topic, "refused").inc()
            raise
        self._pending.add(future)
        future.add_done_callback(functools.partial(count, topic, began))
        return future

    def _count(self, topic: str, began: float, future: asyncio.Future[Any], number: int = 1) -> None:
        self._pending.discard(future)
        self._settled.set()
        if future.cancelled() or future.exception() is not None:
            self._metrics.messages.labels(self.driver, topic, "refused").inc(number)
            return
        counters = self._published.get(topic)
        if counters is None:
            counters = self._published[topic] = (
                self._metrics.messages.labels(self.driver, topic, "published"),
                self._metrics.publish_latency_ms.labels(self.driver, topic),
            )
        counters[0].inc(number)
        counters[1].observe((time.perf_counter() - began) * 1000)

    def _count_sent(self, topic: str, began: float, future: asyncio.Future[str]) -> None:
        """Of those whose future nobody has to look at."""
        self._count(topic, began, future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failed += 1
            self._first_failure = self._first_failure or error

    # Subscribing

    async def subscribe(
        self,
        topic: str,
        group: str,
        handler: Handler,
        options: SubscribeOptions | None = None,
        **fields: Unpack[OptionFields],
    ) -> Subscription:
        """Runs `handler` for every message of the topic, until the subscription or the bus is closed. Subscribers of
        the same group, here or elsewhere, share the messages; every group sees all of them.

        The handler is `async`, or an ordinary function, which runs in a thread. When it returns, the message is acked.
        When it raises, the message comes again after the backoff, and after `max_deliver` attempts it is a dead letter
        in `<topic>.DLQ`; `raise Reject("why")` takes it there at once, `raise Retry(delay_ms=…)` sets the pause.

        Example:
            async def ship(message: Message) -> None:
                print(message.json(), message.attributes["customerId"])

            await bus.subscribe("orders", "shipping", ship, max_in_flight=8)
        """
        self._check_taking()
        if refusal := handlers.why_not(handler):
            raise InvalidArgument(refusal)
        options = _options(options, fields)
        name = self._name(topic)
        check_name("group", group)
        dead = dead_letter_topic(topic, options.dead_letter_topic)
        options = self._named(topic, options)
        source = await self._driver.subscribe(name, group, options)
        if self._closing is not None:
            # Closed while the engine was asked: nobody would end what began now.
            await source.stop()
            await source.close()
        self._check_taking()
        subscription = Subscription(
            topic=topic,
            group=group,
            handler=handler,
            options=options,
            source=source,
            bury=functools.partial(self._bury, dead),
            metrics=self._metrics,
            driver=self.driver,
            on_closed=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        self._subscribed.set()
        log.info("%s: at work on %s, %d at a time", self.driver, subscription, options.max_in_flight)
        return subscription

    async def _bury(self, topic: str, message: Outgoing) -> str:
        return await (await self._track(topic, message, self._count))

    async def _sample_lags(self) -> None:
        """Also as soon as there is a new one: a gauge that begins at 0 looks as if all were done."""
        interval_s = self.settings.lag_interval_ms / 1000
        pause_s = interval_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._subscribed.wait()
            self._subscribed.clear()
            known = [await self._sample_lag(subscription) for subscription in list(self._subscriptions)]
            pause_s = interval_s if all(known) else min(interval_s, LAG_UNKNOWN_S)

    async def _sample_lag(self, subscription: Subscription) -> bool:
        try:
            return await subscription.sample_lag()
        except Exception as error:  # noqa: BLE001 - a gauge is no reason to lose all of them
            log.debug("%s: its lag is not known: %s", subscription, error)
            return True

    # The rest

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """What the bus does for a handler that is an ordinary function, and so runs in a thread; returns when it is
        done, with what it returns.

        Example:
            def resize(message: Message) -> None:
                bus.from_thread(bus.publish("thumbnails", small(message.data)))
        """
        if self._loop is None or threading.get_ident() == self._thread:
            work.close()
            raise InvalidArgument("this is no thread of its own: await it instead")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def topic(self, topic: str) -> TopicInfo | None:
        """What there is of a topic: its partitions, and how much it keeps; None where there is none."""
        self._check_open()
        found = await self._driver.topic(self._name(topic))
        return None if found is None else replace(found, name=topic)

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that were given up: to be listed, sent back, and discarded."""
        return DeadLetters(self, self._driver)

    async def groups(self, topic: str) -> list[str] | None:
        """Return the names of the groups that have ever subscribed to a topic and are still there, sorted; None where
        the engine does not know them (core NATS). A topic that does not exist has none.

        Example:
            if await bus.groups("orders") == []: print("no consumer has subscribed to orders yet")
        """
        self._check_open()
        return await self._driver.groups(self._name(topic))

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Makes the topic if it is missing; one that exists is left as it is. Publishing and subscribing do so by
        themselves, with what the settings say, unless BUS_ENSURE is false.

        Example:
            await bus.ensure_topic("jobs.tasks", partitions=8, retention=timedelta(days=7))
        """
        self._check_open()
        wanted = _wanted(partitions, retention, retention_bytes)
        await self._driver.ensure_topic(self._name(topic), *wanted)

    async def adjust_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
    ) -> TopicInfo:
        """Changes a topic that exists, and returns what holds then. What the engine cannot do stays as it was, which is
        no error: compare. Raises TopicMissing.

        Example:
            info = await bus.adjust_topic("jobs.tasks", partitions=16, retention=timedelta(days=2))
        """
        self._check_open()
        wanted = _wanted(partitions, retention, retention_bytes)
        return replace(await self._driver.adjust_topic(self._name(topic), *wanted), name=topic)

    async def ensure_group(
        self, topic: str, group: str, options: SubscribeOptions | None = None, **fields: Unpack[OptionFields]
    ) -> None:
        """Makes what the group needs so as to miss nothing that is published from now on, and takes no message: all
        that `subscribe` with these options would make. What exists is left as it is.

        Example:
            await bus.ensure_group("orders", "shipping")
        """
        self._check_open()
        check_name("group", group)
        options = self._named(topic, _options(options, fields))
        await self._driver.ensure_group(self._name(topic), group, options)

    async def read(
        self, topic: str, partition: int = 0, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[Stored, None]:
        """What a partition of a topic holds, from offset `start` up to, and without, `end`, or what is there now.
        Nothing is taken from anybody. Raises Unsupported where the engine keeps no log (Pub/Sub, core NATS).

        Example:
            async for stored in bus.read("orders", start=100):
                print(stored.offset, stored.data)
        """
        self._check_open()
        async with contextlib.aclosing(self._driver.read(self._name(topic), partition, start, end)) as messages:
            async for stored in messages:
                yield self._unprefixed(stored)

    async def follow(self, topic: str, partition: int = 0, start: int = 0) -> AsyncGenerator[list[Stored], None]:
        """`read` without an end: what a partition holds from offset `start`, or from the oldest there is if that has
        been removed, and then whatever comes, in lists of up to 1,000. A server that goes away is waited for. Raises
        Unsupported where `read` does, and TopicMissing when the topic is deleted.

        Example:
            async with contextlib.aclosing(bus.follow("orders", start=100)) as batches:
                async for batch in batches:
                    print(batch[0].offset, len(batch))
        """
        self._check_open()
        async with contextlib.aclosing(self._driver.follow(self._name(topic), partition, start)) as batches:
            async for batch in batches:
                yield [self._unprefixed(stored) for stored in batch] if self.settings.prefix else batch

    async def tap(self, pattern: str = "*", *, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        """Whatever passes from now on, of all topics that match, without consuming it from anyone. `*` in the pattern
        stands for anything, dots too. `listening` is set when nothing that is published afterwards can be missed.

        Example:
            async for stored in bus.tap("internal.*"):
                print(stored.topic, stored.attributes["correlationId"])
        """
        self._check_open()
        start = self.settings.prefix + literal_start(pattern)
        # Closed with this one, and not when somebody clears away what is left: the driver has things to give back.
        async with contextlib.aclosing(self._driver.tap(start, listening)) as taps:
            async for stored in taps:
                passing = self._unprefixed(stored)
                if fnmatch.fnmatchcase(passing.topic, pattern):
                    yield passing

    async def until_stopped(self) -> None:
        """Returns at the first SIGTERM or Ctrl-C, for the end of the `async with` to let handlers finish; a second one
        ends the program as usual. For the main thread of a service.

        Example:
            async with open_bus() as bus:
                await bus.subscribe("orders", "shipping", ship)
                await bus.until_stopped()
        """
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:
            loop.add_signal_handler(number, stopped.set)
        try:
            await stopped.wait()
            log.info("stopping: handlers may finish; again to stop at once")
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def close(self) -> None:
        """Lets handlers finish and the engine hear about it, waits for what is being published, and leaves. Raises
        PublishFailed as `flush` does."""
        for subscription in self._subscriptions:
            subscription.check_not_inside()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait({self._sampling})
        drain_s = self.settings.drain_timeout_ms / 1000
        try:
            closed = await asyncio.gather(
                *(subscription.close(drain_s) for subscription in list(self._subscriptions)), return_exceptions=True
            )
            self._closed = True
            await self.flush()
        finally:
            self._closed = True
            await self._driver.close()
        for outcome in closed:
            if isinstance(outcome, BaseException):
                raise outcome

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except PublishFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))  # it is on its way, and must arrive

    def _name(self, topic: str) -> str:
        check_name("topic", topic)
        return self.settings.prefix + topic

    def _named(self, topic: str, options: SubscribeOptions) -> SubscribeOptions:
        """With the dead-letter topic as the engine knows it; none is ""."""
        dead = dead_letter_topic(topic, options.dead_letter_topic)
        return replace(options, dead_letter_topic=self._name(dead) if dead else "")

    def _unprefixed(self, stored: Stored) -> Stored:
        prefix = self.settings.prefix
        return replace(stored, topic=stored.topic.removeprefix(prefix)) if prefix else stored

    def _check_taking(self) -> None:
        self._check_open()
        if self._closing is not None:
            raise BusClosed("this bus is being closed: open another")

    def _check_open(self) -> None:
        """While it is being closed it is open to handlers, which are to finish, and may have to publish for that."""
        if self._closed:
            raise BusClosed("this bus is closed: open another")
        if not self._opened:
            raise BusClosed("this bus is not open: await open_bus(), or use it as `async with open_bus() as bus`")
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidArgument(
                "this bus belongs to another event loop: from a thread, call bus.from_thread(bus.publish(…))"
            )


def _options(options: SubscribeOptions | None, fields: OptionFields) -> SubscribeOptions:
    options = options or SubscribeOptions()
    if fields:
        unknown = set(fields) - set(SubscribeOptions.__struct_fields__)
        if unknown:
            names = ", ".join(SubscribeOptions.__struct_fields__)
            raise InvalidArgument(f"subscribe has no option {unknown.pop()!r}; there are {names}")
        options = replace(options, **fields)
    options.check()
    return options


def _wanted(
    partitions: int | None, retention: Duration | None, retention_bytes: int | None
) -> tuple[int | None, int | None, int | None]:
    """As drivers take it."""
    if partitions is not None and partitions < 1:
        raise InvalidArgument("a topic has at least one partition")
    if retention_bytes is not None and retention_bytes < 0:
        raise InvalidArgument("a topic cannot keep fewer than no bytes; 0 is no limit")
    return partitions, None if retention is None else round(seconds(retention) * 1000), retention_bytes


def _outgoing(topic: str, drafts: Sequence[Draft]) -> Iterator[Outgoing]:
    """Those in a row that have the very same attributes have them looked at once."""
    given: object = drafts  # which nobody has as attributes
    for draft in drafts:
        if draft.attributes is not given:
            given, attributes = draft.attributes, normalize(draft.attributes)
        data = draft.data
        yield Outgoing(
            topic,
            data if type(data) is bytes else _bytes(data),
            attributes,
            _text("key", draft.key),
            _text("message_id", draft.message_id),
        )


def _bytes(data: object) -> bytes:
    if isinstance(data, str):
        return encodable("data", data).encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidArgument(f"data is {type(data).__name__}: give bytes or text, such as json.dumps(…)")


def _text(what: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return encodable(what, str(value))
    raise InvalidArgument(f"{what} is {type(value).__name__}: it must be text")
