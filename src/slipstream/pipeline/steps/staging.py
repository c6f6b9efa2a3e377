"""Leaves answers with the server, where nobody sees them until the driver commits them."""

from __future__ import annotations

import atexit
import functools
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slipstream.api import ProduceMessage
from slipstream.pipeline.steps.attempt import Sent, buried, failed_for_good
from slipstream.slip import clock
from slipstream.slip.event import StepError
from slipstream.slip.topics import DEAD_LETTERS, ROUTER

if TYPE_CHECKING:
    from slipstream.client import Client, InvalidArgument

log = logging.getLogger(__name__)

REQUEST_BYTES = 768 << 10
REQUEST_MESSAGES = 5_000
"""In one request, at most, unless a single message is larger. A server takes 16 MiB and 10,000 messages if it is told
nothing else, but everybody waits while it takes a request apart."""


RETRY_FOR_MS = 1_000


@functools.cache
def client_of(url: str) -> Client:
    """One for the process, which Spark uses for many tasks: to connect takes as long as a thousand messages."""
    from slipstream.client import Client  # noqa: PLC0415

    # Who has no room is not asked again and again: what would make room is the commit of what others have staged.
    client = Client(url, retry_for_ms=RETRY_FOR_MS)
    atexit.register(client.close)
    return client


class Staging:
    """The answers of one task."""

    def __init__(self, url: str, prefix: str, writer: str, sequence: int, attempt: str) -> None:
        """`prefix` stands before every topic."""
        self._client = client_of(url)
        self._prefix, self._writer, self._sequence, self._attempt = prefix, writer, sequence, attempt
        self._waiting: list[Sent] = []
        self._bytes = 0
        self._staged: list[str] = []
        self.counts: dict[str, int] = {}

    def add(self, sent: Sent) -> None:
        size = len(sent.data)
        if self._waiting and (self._bytes + size > REQUEST_BYTES or len(self._waiting) >= REQUEST_MESSAGES):
            self._flush()
        self._waiting.append(sent)
        self._bytes += size

    def finish(self) -> list[str]:
        """What the commit is to name."""
        self._flush()
        return self._staged

    def take_back(self) -> None:
        """It will not be committed, and would keep room from those who try again."""
        from slipstream.client import SlipstreamError  # noqa: PLC0415

        if not self._staged:
            return
        try:
            self._client.unstage(self._writer, self._sequence, self._staged)
        except SlipstreamError as error:  # which is why we are here, most likely
            log.warning("what was staged stays for a while in the memory of the server: %s", error)

    def _flush(self) -> None:
        if self._waiting:
            sent, self._waiting, self._bytes = self._waiting, [], 0
            self._stage(sent, ROUTER)

    def _stage(self, sent: Sequence[Sent], topic: str) -> None:
        """A message that the server does not take is found by halving, and something smaller is sent for it."""
        from slipstream.client import InvalidArgument  # noqa: PLC0415

        messages = [ProduceMessage(value=each.data, key=each.key, attributes=each.attributes) for each in sent]
        try:
            part = self._client.stage(
                self._prefix + topic, messages, writer=self._writer, sequence=self._sequence, attempt=self._attempt
            )
        except InvalidArgument as refusal:
            half = len(sent) // 2
            if half:
                self._stage(sent[:half], topic)
                self._stage(sent[half:], topic)
            else:
                self._stage_smaller(sent[0], refusal)
        else:
            self._staged.append(part.staged)
            for kind, count in Counter(each.kind for each in sent).items():
                self.counts[kind] = self.counts.get(kind, 0) + count

    def _stage_smaller(self, sent: Sent, refusal: InvalidArgument) -> None:
        """Its step has failed, with what it was given; where that cannot be sent either, without; and in the end there
        is a dead letter that says where it lies."""
        if sent.topic == DEAD_LETTERS:
            raise refusal  # which has a thousand characters: this server takes nothing
        smaller = _smaller(sent, StepError("unsendable", str(refusal)))
        log.warning("%d bytes cannot be sent, and %d are instead: %s", len(sent.data), len(smaller.data), refusal)
        self._stage([smaller], smaller.topic)


def _smaller(sent: Sent, error: StepError) -> Sent:
    now = clock.now()
    if sent.attempt is None:
        return buried(sent.came, error, now)
    for bare in (False, True):
        failed = failed_for_good(sent.attempt, error, now, bare=bare)
        if len(failed.data) < len(sent.data):
            return failed
    return buried(sent.came, error, now)  # its envelope alone is too large
