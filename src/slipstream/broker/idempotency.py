"""Operations that must happen once: a registry of keys with a status, an owner and a time to live (ruling 8)."""

from __future__ import annotations

import enum
from collections import deque
from typing import Generic, TypeVar

from slipstream.broker.errors import FailedPrecondition

Identity = TypeVar("Identity")

STALE_KEPT = 1_024
"""Entries of the expiry queue that may be out of date before it is made anew."""


class Status(enum.IntEnum):
    PENDING = 0
    COMMITTED = 1
    FAILED = 2


class Operation:
    """What is known of one key."""

    __slots__ = ("error", "expires_ms", "lease_until_ms", "offset", "owner", "partition", "status")

    def __init__(self, status: Status, expires_ms: int) -> None:
        self.status = status
        self.expires_ms = expires_ms
        self.owner = ""
        self.lease_until_ms = 0
        self.error = ""
        self.partition = 0
        self.offset = -1
        """Where the message went, for a producer's key."""


class Registry(Generic[Identity]):
    """Begin, then commit or fail. A failed operation may begin again; a committed one is remembered for the TTL.

    Holds at most `max_keys`; past that the oldest are forgotten first, and counted, because a broker that runs out of
    memory protects nobody.
    """

    def __init__(self, ttl_ms: int, max_keys: int) -> None:
        self.ttl_ms = ttl_ms
        self.max_keys = max_keys
        self.operations: dict[Identity, Operation] = {}
        self.evicted = 0
        # In order of entry, which is near enough the order of expiry; an identity may stand here more than once, and
        # only the entry that matches its operation's expiry counts.
        self._expiry: deque[tuple[int, Identity]] = deque()

    def find(self, identity: Identity, now_ms: int) -> Operation | None:
        self._expire(now_ms)
        operation = self.operations.get(identity)
        # A longer lease ahead in the queue may keep an expired operation in memory for a while: it does not count.
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
                    raise FailedPrecondition("an operation with this idempotency key is under way; try again later")
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
        operation = Operation(status, max(now_ms, lease_until_ms) + self.ttl_ms)
        operation.owner = owner
        operation.lease_until_ms = lease_until_ms
        operation.error = error
        self.operations[identity] = operation
        self._expiry.append((operation.expires_ms, identity))
        if len(self._expiry) > 2 * len(self.operations) + STALE_KEPT:
            self._forget_stale()
        while len(self.operations) > self.max_keys:
            self._drop_oldest()
        return operation

    def settle(self, identity: Identity, now_ms: int, owner: str) -> Operation:
        """The pending operation that `owner` may commit or fail."""
        operation = self.find(identity, now_ms)
        if operation is None or operation.status is not Status.PENDING:
            raise FailedPrecondition("no operation with this idempotency key is under way; begin it first")
        if operation.owner != owner:
            raise FailedPrecondition("not owner")
        return operation

    def _expire(self, now_ms: int) -> None:
        expiry = self._expiry
        while expiry and expiry[0][0] <= now_ms:
            expires_ms, identity = expiry.popleft()
            operation = self.operations.get(identity)
            if operation is not None and operation.expires_ms == expires_ms:
                del self.operations[identity]

    def _forget_stale(self) -> None:
        """A key that begins and fails over and over leaves an entry each time, kept by the longest lease before it."""
        current = sorted((operation.expires_ms, n) for n, operation in enumerate(self.operations.values()))
        identities = list(self.operations)
        self._expiry = deque((expires_ms, identities[n]) for expires_ms, n in current)

    def _drop_oldest(self) -> None:
        expires_ms, identity = self._expiry.popleft()
        operation = self.operations.get(identity)
        if operation is not None and operation.expires_ms == expires_ms:
            del self.operations[identity]
            self.evicted += 1
