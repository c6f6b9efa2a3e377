"""Operations that must happen once: a registry of keys with a status, an owner and a time to live (ruling 8)."""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from typing import TypeAlias

import msgspec

from slipstream.broker.errors import FailedPrecondition, InProgress

Identity: TypeAlias = tuple[str, int, str]
"""(tenant, topic or group, key)"""

STALE_KEPT = 1_024
"""Entries of the expiry queue, and of the pages, that may be out of date before they are made anew."""

PAGE = 256
"""Operations in a page of a snapshot."""

EXPIRED_AT_ONCE = 64
"""Keys that are forgotten on the way, when another is asked for: after a rush there may be a million, and who comes
then should not wait for all of them."""

KEY_CHARS_MAX = 200
"""Longer keys are known by their digest."""


def short(text: str) -> str:
    """A key or tenant as it is remembered: the number of keys is limited, so their length has to be as well."""
    if len(text) <= KEY_CHARS_MAX:
        return text
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class Status(enum.IntEnum):
    PENDING = 0
    COMMITTED = 1
    FAILED = 2


class Operation(msgspec.Struct, array_like=True, gc=False):
    """What is known of one key."""

    identity: Identity
    status: Status
    expires_ms: int
    owner: str = ""
    lease_until_ms: int = 0
    error: str = ""
    partition: int = 0
    """For a producer's key; for a batch, how many partitions the topic had."""
    offset: int = -1
    """Where the message went, for a producer's key; the first of them, for a batch."""
    count: int = 0
    """Of the messages in a batch."""
    places: list[tuple[int, int, int]] = []
    """Where they went (topic id, partition, offset), unless that was `count` offsets in a row, by their keys."""


_encode_page = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(list[Operation]).decode


class Registry:
    """Begin, then commit or fail. A failed operation may begin again; a committed one is remembered for the TTL.

    Holds at most `max_keys`; past that the oldest are forgotten first, and counted, because a broker that runs out of
    memory protects nobody.

    There may be a million, so a snapshot must not have to encode them all at once while everybody waits. They are
    encoded as they come, a page at a time; a later page overrules an earlier one.
    """

    def __init__(self, ttl_ms: int, max_keys: int) -> None:
        self.ttl_ms = ttl_ms
        self.max_keys = max_keys
        self.operations: dict[Identity, Operation] = {}
        self.evicted = 0
        # In order of entry, which is near enough the order of expiry; an identity may stand here more than once, and
        # only the operation that is remembered for it counts.
        self._expiry: deque[Operation] = deque()
        self._pages: deque[tuple[int, bytes]] = deque()
        """(when the last of its operations expires, encoded)"""
        self._open_page: list[Operation] = []

    def find(self, identity: Identity, now_ms: int) -> Operation | None:
        self.forget_expired(now_ms, EXPIRED_AT_ONCE)
        operation = self.operations.get(identity)
        # One that has expired stays in memory while many, or a longer lease, are before it in the queue: it does not
        # count.
        return operation if operation is not None and operation.expires_ms > now_ms else None

    def begin(self, identity: Identity, now_ms: int, owner: str = "", lease_ms: int = 0) -> bool:
        """True if the caller should do the work, False if it is already done.

        Raises FailedPrecondition while someone else is doing it.
        """
        operation = self.find(identity, now_ms)
        if operation is not None:
            if operation.status is Status.COMMITTED:
                return False
            if operation.status is Status.PENDING:
                lapsed = operation.lease_until_ms and operation.lease_until_ms <= now_ms
                if not lapsed and (not owner or operation.owner != owner):
                    raise InProgress("an operation with this idempotency key is under way; try again later")
        self.put(identity, Status.PENDING, now_ms, owner=owner, lease_until_ms=now_ms + lease_ms if lease_ms else 0)
        return True

    def put(
        self,
        identity: Identity,
        status: Status,
        now_ms: int,
        *,
        owner: str = "",
        lease_until_ms: int = 0,
        error: str = "",
    ) -> Operation:
        expires_ms = max(now_ms, lease_until_ms) + self.ttl_ms
        operation = Operation(identity, status, expires_ms, owner, lease_until_ms, error)
        self._enter(operation)
        return operation

    def forget_expired(self, now_ms: int, at_most: int) -> None:
        expiry = self._expiry
        while expiry and expiry[0].expires_ms <= now_ms and at_most:
            self._drop_first()
            at_most -= 1
        while self._pages and self._pages[0][0] <= now_ms:
            self._pages.popleft()

    def pages(self) -> list[bytes]:
        """For a snapshot: everything that `restore` needs."""
        pages = [page for _, page in self._pages]
        return [*pages, _encode_page(self._open_page)] if self._open_page else pages

    def restore(self, pages: list[bytes]) -> None:
        for page in pages:
            for operation in _decode_page(page):
                self._enter(operation)

    def _enter(self, operation: Operation) -> None:
        # Before it is on one: the caller may still want to note where the message went.
        if len(self._open_page) >= PAGE:
            self._close_page()
        self.operations[operation.identity] = operation
        self._open_page.append(operation)
        self._expiry.append(operation)
        if len(self._expiry) > 2 * len(self.operations) + STALE_KEPT:
            self._forget_stale()
        while len(self.operations) > self.max_keys:
            self.evicted += self._drop_first()

    def _close_page(self) -> None:
        last_ms = max(operation.expires_ms for operation in self._open_page)
        self._pages.append((last_ms, _encode_page(self._open_page)))
        self._open_page = []
        if len(self._pages) * PAGE > 2 * len(self.operations) + STALE_KEPT:
            self._forget_stale_pages()

    def settle(self, identity: Identity, now_ms: int, owner: str) -> Operation:
        """The pending operation that `owner` may commit or fail."""
        operation = self.find(identity, now_ms)
        if operation is None or operation.status is not Status.PENDING:
            raise FailedPrecondition("no operation with this idempotency key is under way; begin it first")
        if operation.owner != owner:
            raise FailedPrecondition("not owner")
        return operation

    def _forget_stale(self) -> None:
        """A key that begins and fails over and over leaves an entry each time, kept by the longest lease before it."""
        self._expiry = deque(sorted(self.operations.values(), key=lambda operation: operation.expires_ms))

    def _forget_stale_pages(self) -> None:
        """Likewise: only the last word on each key is worth keeping."""
        current = list(self.operations.values())
        self._pages = deque()
        for start in range(0, len(current), PAGE):
            page = current[start : start + PAGE]
            self._pages.append((max(operation.expires_ms for operation in page), _encode_page(page)))

    def _drop_first(self) -> bool:
        """Of the queue; returns whether that was one that is remembered."""
        operation = self._expiry.popleft()
        if self.operations.get(operation.identity) is not operation:
            return False
        del self.operations[operation.identity]
        return True
