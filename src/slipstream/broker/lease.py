"""A message in the hands of a consumer, or on its way back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.broker.evidence import NO_EVIDENCE

if TYPE_CHECKING:
    from slipstream.broker.envelope import RetryPolicy
    from slipstream.broker.group import Consumer


class Lease:
    """A message that was delivered and is not finished yet.

    It stands in `Progress.leases` while its owner has it, and in `Progress.postponed` while it waits for its next
    attempt.
    """

    __slots__ = (
        "attempts",
        "blamed",
        "consumer",
        "delivered_ms",
        "evidence",
        "excused",
        "index",
        "is_attempted",
        "last_error",
        "offset",
        "owner",
        "released",
        "retry",
        "sequence",
        "settled_before",
        "size",
        "until_ms",
    )

    def __init__(
        self,
        offset: int,
        index: int,
        size: int,
        attempts: int,
        owner: str,
        until_ms: int,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.offset = offset
        self.index = index
        self.size = size
        self.attempts = attempts
        """Deliveries so far; 0 while the message waits for its first."""
        self.owner = owner
        self.until_ms = until_ms
        """When the lease runs out, or the next attempt is due."""
        self.retry = retry
        """The retry policy of the handler that took it, if it named one."""
        self.last_error = ""
        self.evidence = NO_EVIDENCE
        """The attempts that failed."""
        self.released = False
        """The owner gave it back (nack); an expired lease is not released and still belongs to its owner (ruling 3)."""
        self.is_attempted = True
        """False once the owner gave it back without an attempt."""
        self.excused = 0
        """Attempts that do not count towards the limit: the consumer never got to the message."""
        self.consumer: Consumer | None = None
        """The consumer that got it. None after a restart."""
        self.blamed: tuple[Consumer, ...] = ()
        """Silent streams that have let it run out once: the next time in their hands does not count."""
        self.delivered_ms = 0
        """When the current attempt was delivered; 0 where a journal of an older version does not say."""
        self.sequence = 0
        """Its place in the order in which the consumer got its messages."""
        self.settled_before = 0
        """Messages that the consumer had settled when it got this one."""

    @property
    def next_attempt(self) -> int:
        """The attempt number of the next delivery."""
        return self.attempts + self.is_attempted

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the deliveries to its owner, the same after a restart."""
        return self.delivered_ms, self.offset

    @property
    def failures(self) -> int:
        """Attempts that count towards the limit."""
        return self.attempts - self.excused

    def let_go(self) -> None:
        """Free its place with the consumer that has it."""
        if self.consumer is not None:
            self.consumer.held -= 1
