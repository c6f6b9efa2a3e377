"""How many messages a stream may hold at a time, measured from how fast it settles them."""

from __future__ import annotations

WINDOW_START = 16
"""Messages a stream gets before its first ack says how fast it is."""

WINDOW_MAX = 1 << 16

LEASE_SHARE = 2
"""A stream holds what it settles within one half of its lease, and no more."""


class Window:
    """The number of messages a stream may hold, which follows the rate of its acks.

    When a message is settled, the number of messages settled since its delivery, divided by that time, is the rate of
    the consumer, however many handlers it runs. The window grows by one with each ack, up to what the consumer settles
    in half a lease at this rate, and shrinks at once, so that a consumer that slows down is not buried.
    """

    __slots__ = ("_rate", "fixed", "limit", "settled")

    def __init__(self, fixed: int = 0) -> None:
        self.fixed = fixed > 0
        """The client asked for this many (`prefetch`); nothing is measured then."""
        self.limit = fixed or WINDOW_START
        self.settled = 0
        """Messages settled so far; a delivery remembers it, to know later how many were settled since."""
        self._rate = 0.0
        """Messages settled per millisecond."""

    def note_settled(self, settled_before: int, taken_ms: int, lease_ms: int) -> None:
        """Learn from an ack or nack of a message that was held for `taken_ms`."""
        self.settled += 1
        if self.fixed:
            return
        sample = (self.settled - settled_before) / (taken_ms or 1)
        rate = self._rate
        # A faster sample counts at once: a slower one may only mean that there was little to do.
        self._rate = rate = sample if sample > rate else rate + (sample - rate) / 8
        target = int(rate * lease_ms / LEASE_SHARE)
        if target > self.limit:
            if self.limit < WINDOW_MAX:
                self.limit += 1
        else:
            self.limit = target or 1

    def expired(self) -> None:
        """Shrink: a lease ran out, so the stream held more than it could settle."""
        if not self.fixed:
            self.limit = max(1, self.limit // 2)
            self._rate /= 2
