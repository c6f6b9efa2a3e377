"""Publishing to JetStream: many under way at a time, each sent again until the server has confirmed it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import OutboundBufferLimitError

from slipstream.bus.dead_letter import REASON as DEAD_LETTER_REASON
from slipstream.bus.drivers.driver import Outgoing
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.headers import to_headers
from slipstream.bus.errors import BusError, BusUnavailable, InvalidArgument, PublishFailed, Unauthorized

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""After this a message is sent again. Its id makes that safe, as long as the server remembers ids for longer."""
SILENCE_S = 1.0
"""After so long without any answer of a stream its oldest message is sent again, and the others wait behind it. Its
leader may be gone: without this, they would all be lost until `ANSWER_S` is over."""
AFTER_SILENCE_S = 0.1
"""How long answers that were only late may take to arrive behind the first."""
LOOK_S = 0.25
COMMAND_LINE_BYTES = 1_024
"""The subject and the inbox of a publish stand in its first bytes."""
HEADERS_BYTES_MAX = 65_535
DEAD_LETTER_BYTES = 4_096
"""What the attributes of a dead letter add, at most: a message that could not be buried is not taken."""
STORE_FAILED = 10077
"""Error code of the server: the stream is full, and set to refuse."""


class _Refusal(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    seq: int = 0
    error: _Refusal | None = None


_decode = msgspec.json.Decoder(_Answer).decode


class _Pending:
    __slots__ = ("began_at", "future", "headers", "message", "reason", "sent_at")

    def __init__(self, message: Outgoing, headers: dict[str, str], future: asyncio.Future[str], now: float) -> None:
        self.message = message
        self.headers = headers
        self.future = future
        self.began_at = now
        self.reason = "no answer"
        """Why it is not stored yet."""
        self.sent_at = 0.0
        """0.0: not at all, as far as we know."""


class Publisher:
    """Confirmations come to one inbox, so that none needs a subscription, a task or a timer of its own: nats-py's
    `publish` was measured at 11,000 a second, its `publish_async` at 17,000."""

    def __init__(self, connection: Connection, ensure: Callable[[str], Awaitable[str]], timeout_s: float) -> None:
        self._connection = connection
        self._nats = connection.nats
        self._ensure = ensure
        """Makes the stream of a topic, if that is wanted."""
        self._timeout_s = timeout_s
        self._inbox = self._nats.new_inbox()
        self._name = secrets.token_hex(8)
        self._count = 0
        self._pending: dict[str, _Pending] = {}
        """By number, in order."""
        self._known: set[str] = set()
        """Topics whose stream has been looked for."""
        self._held = False
        """The connection is lost, or what was under way when it was is not all sent again yet."""
        self._troubled: set[str] = set()
        """Topics whose stream is being looked for."""
        self._finding: dict[str, asyncio.Future[str]] = {}
        """Streams that are being looked for, or made, by topic."""
        self._heard_at: dict[str, float] = {}
        """When a stream last answered, by topic."""
        self._silent: set[str] = set()
        """Topics whose stream does not answer."""
        self._resuming: set[str] = set()
        """Silent topics whose stream has just answered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._nats.subscribe(f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0)
        self._connection.on_denied.append(self._on_denied)
        self._connection.on_disconnect.append(self._hold)
        self._connection.on_reconnect.append(lambda: self._begin(self._catch_up()))
        self._watch = asyncio.create_task(self._look_after())

    async def close(self) -> None:
        tasks: list[asyncio.Future[Any]] = [*self._tasks, *self._finding.values()]
        tasks += [self._watch] if self._watch is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        self._count += 1
        number = str(self._count)
        headers = to_headers(message.attributes, message.key, message.message_id or f"{self._name}-{number}")
        self._check_size(message, headers)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending[number] = pending = _Pending(message, headers, future, time.monotonic())
        if message.topic not in self._known:
            # Looked for, because that nobody answers is not told while somebody listens who is no stream: a tap.
            self._known.add(message.topic)
            self._find_stream(message.topic, is_new=True)
        if self._may_send(message.topic):
            await self._send(number, pending)
        return future

    def _may_send(self, topic: str) -> bool:
        return not self._held and topic not in self._troubled and topic not in self._silent

    def _check_size(self, message: Outgoing, headers: dict[str, str]) -> None:
        """The server would end the connection over it, and each time it is sent again."""
        headers_size = sum(len(name) + len(value) + 4 for name, value in headers.items()) + 12
        size = len(message.data) + headers_size
        room = 0 if DEAD_LETTER_REASON in message.attributes else DEAD_LETTER_BYTES
        limit = self._nats.max_payload
        if size > limit - room or headers_size > HEADERS_BYTES_MAX - room:
            raise InvalidArgument(
                f"a message of {size} bytes to {message.topic}, {headers_size} of them attributes, is larger than the "
                f"server takes: its max_payload is {limit}, attributes may have {HEADERS_BYTES_MAX}, and of both "
                f"{DEAD_LETTER_BYTES} are for the day it is a dead letter"
            )

    async def _send(self, number: str, pending: _Pending) -> None:
        message = pending.message
        pending.sent_at = time.monotonic()
        try:
            await self._nats.publish(message.topic, message.data, f"{self._inbox}.{number}", pending.headers)
        except OutboundBufferLimitError:
            pending.sent_at = 0.0  # the server is away, and enough waits for it: sent when it is back
        except NatsError as error:
            self._fail(number, pending, str(error) or type(error).__name__)

    async def _on_answer(self, answer: Msg) -> None:
        number = answer.subject.rpartition(".")[2]
        pending = self._pending.get(number)
        if pending is None:
            return  # it was sent twice, and confirmed twice
        self._heard_at[pending.message.topic] = time.monotonic()
        if answer.headers is not None and answer.headers.get("Status") == "503":
            pending.sent_at = 0.0  # nobody listens on its subject: there is no stream, or no JetStream yet
            self._find_stream(pending.message.topic, is_new=False)
            return
        topic = pending.message.topic
        if topic in self._silent and topic not in self._resuming:
            self._resuming.add(topic)
            self._begin(self._resume(topic))
        confirmed = _decode(answer.data)
        if confirmed.error is None:
            self._settle(number, pending, str(confirmed.seq))
            return
        refusal = confirmed.error
        pending.reason = f"{refusal.description} (code {refusal.code}, {refusal.err_code})"
        if refusal.code != 503 or refusal.err_code == STORE_FAILED:
            self._fail(number, pending, pending.reason)  # or else it may be taken later, and the watch tries again

    def _on_denied(self, what: str, subject: str) -> None:
        """Nothing else is answered to what was published there."""
        for number, pending in list(self._pending.items()) if what == "publish" else ():
            topic = pending.message.topic
            if topic.lower() == subject:
                error = Unauthorized(f"a message to {topic} was not stored: no permission to publish to this subject")
                self._settle_with(number, pending, error)

    def _settle(self, number: str, pending: _Pending, message_id: str) -> None:
        del self._pending[number]
        if not pending.future.done():
            pending.future.set_result(message_id)

    def _fail(self, number: str, pending: _Pending, reason: str) -> None:
        error = PublishFailed(f"a message to {pending.message.topic} was not stored: {reason}")
        self._settle_with(number, pending, error)

    def _settle_with(self, number: str, pending: _Pending, error: BusError) -> None:
        self._pending.pop(number, None)
        if not pending.future.done():
            pending.future.set_exception(error)

    # Trouble. What was under way is sent again in its order, and what comes meanwhile waits for its turn behind it.

    def _hold(self) -> None:
        """The connection is lost. nats-py would send what it has in its buffer as soon as there is another, and so
        before what was lost on the way: that is for us to send."""
        self._held = True
        ours = f" {self._inbox}.".encode()
        left = [command for command in self._nats._pending if ours not in command[:COMMAND_LINE_BYTES]]
        self._nats._pending = left
        self._nats._pending_data_size = sum(map(len, left))

    async def _catch_up(self) -> None:
        """What the server has already, it recognizes by its id."""
        self._silent.clear()
        for pending in self._pending.values():
            pending.sent_at = 0.0
        if await self._send_unsent(None):
            self._held = False

    async def _send_unsent(self, topic: str | None) -> bool:
        """All of them, or those of a topic; False if the connection was lost meanwhile."""
        while unsent := [
            (number, pending)
            for number, pending in self._pending.items()
            if not pending.sent_at and topic in (None, pending.message.topic)
        ]:
            for number, pending in unsent:
                if not self._nats.is_connected:
                    return False
                if number in self._pending:
                    await self._send(number, pending)
        return True

    async def _resume(self, topic: str) -> None:
        """The stream answers again. What it has not answered shortly after was lost with its leader."""
        try:
            await asyncio.sleep(AFTER_SILENCE_S)
            for _, pending in self._of(topic):
                pending.sent_at = 0.0
            await self._send_unsent(topic)
        finally:
            self._silent.discard(topic)
            self._resuming.discard(topic)

    def _find_stream(self, topic: str, *, is_new: bool) -> None:
        if topic not in self._troubled:
            self._troubled.add(topic)
            self._begin(self._make_stream(topic, is_new))

    async def _make_stream(self, topic: str, is_new: bool) -> None:
        """Wait until the stream is found or made. One that was there before may only be without a leader: then the
        oldest message is sent again while it is looked for, as the stream may have a leader before the API has."""
        try:
            if not await self._found(topic, is_new):
                return
            if is_new:
                for _, pending in self._of(topic):
                    pending.sent_at = 0.0
                await self._send_unsent(topic)
            elif waiting := self._of(topic):
                self._silent.add(topic)
                await self._send(*waiting[0])
        finally:
            self._troubled.discard(topic)

    async def _found(self, topic: str, is_new: bool) -> bool:
        """Return False if there is no stream, and none can be made: then all that was published to it has failed."""
        finding = self._finding.get(topic)
        if finding is None:
            finding = self._finding[topic] = asyncio.ensure_future(self._ensure(topic))
            finding.add_done_callback(_retrieve)
        if not is_new:
            await asyncio.sleep(LOOK_S)
        try:
            if is_new or finding.done():
                self._finding.pop(topic)
                await finding
        except (BusUnavailable, Unauthorized):
            # JetStream is not back yet, or who may publish may not ask for them: the answer tells.
            await asyncio.sleep(LOOK_S)
        except BusError as error:
            for number, pending in self._of(topic):
                self._settle_with(number, pending, error)
            self._known.discard(topic)
            return False
        return True

    def _of(self, topic: str) -> list[tuple[str, _Pending]]:
        return [(number, pending) for number, pending in self._pending.items() if pending.message.topic == topic]

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            asked: set[str] = set()
            for number, pending in list(self._pending.items()):
                topic = pending.message.topic
                if now - pending.began_at > self._timeout_s:
                    self._fail(number, pending, f"{pending.reason} in {self._timeout_s:g} s")
                elif self._held or topic in self._troubled:
                    continue
                elif topic not in asked and self._is_silent(pending, now):
                    asked.add(topic)
                    self._silent.add(topic)
                    await self._send(number, pending)
                elif now - pending.sent_at > ANSWER_S and topic not in self._silent:
                    await self._send(number, pending)
                asked.add(topic)  # only the oldest is sent again: those behind it must not overtake it
            self._silent &= {pending.message.topic for pending in self._pending.values()}

    def _is_silent(self, oldest: _Pending, now: float) -> bool:
        return now - max(oldest.sent_at, self._heard_at.get(oldest.message.topic, 0.0)) > SILENCE_S

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _retrieve(finding: asyncio.Future[str]) -> None:
    """A failure is looked at when the topic is looked for again, which need not happen."""
    if not finding.cancelled():
        finding.exception()
