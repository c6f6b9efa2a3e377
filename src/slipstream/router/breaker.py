"""A circuit breaker: decides whether a router is asked, from how its last answers went. It has no clock and no log."""

from __future__ import annotations

import enum

TIMEOUTS_MAX = 3
"""Time-outs in a row after which the router is not asked for a while. One may be chance; each costs a producer all of
`router_timeout_ms`."""

PAUSE_S = 1.0
PAUSE_S_MAX = 30.0
"""The first pause, doubling with each probe that times out too. One message in so long is no burden to producers, and a
router that was restarted is noticed soon enough."""

SETTLED_S = 10.0
"""A router works again when it has not failed for so long. One that fails now and then logs no more often than this."""


class Admission(enum.Enum):
    """Whether a message may be shown to the router."""

    REFUSED = enum.auto()
    ASKED = enum.auto()
    PROBE = enum.auto()
    """The one message of a pause that finds out whether the router answers again."""


class Breaker:
    """The state of a router: works, fails, or is paused.

    Only time-outs pause it. An error that comes at once costs producers nothing, and the next message may well be one
    that the router can decide.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why the router failed last; empty while it works."""
        self.failures = 0
        """Messages the router did not decide since it last worked."""
        self.failing_since_s = 0.0
        self.is_paused = False
        self._failed_at_s = 0.0
        self._has_answered = False
        """The router's last answer was a decision, and could be followed as far as is known."""
        self._timeouts = 0
        self._pause_s = PAUSE_S
        self._paused_until_s = 0.0
        self._is_probing = False

    def admit(self, now_s: float) -> Admission:
        """Return whether the router is asked. After ASKED or PROBE comes one of `answered`, `failed`, `timed_out` and
        `given_up`."""
        if not self.is_paused:
            return Admission.ASKED
        if self._is_probing or now_s < self._paused_until_s:
            self.failures += 1
            return Admission.REFUSED
        self._is_probing = True
        return Admission.PROBE

    def answered(self, admission: Admission) -> None:
        """Note a decision. Whether it can be followed, `succeeded` or `missed` says later."""
        self._note_in_time(admission)
        self._has_answered = True

    def succeeded(self, now_s: float) -> bool:
        """Note that a decision was followed; return whether the router works again with this."""
        if not self.reason or self.is_paused or now_s < self._failed_at_s + SETTLED_S:
            return False
        self.reason = ""
        self._pause_s = PAUSE_S
        return True

    def failed(self, now_s: float, admission: Admission, reason: str) -> bool:
        """Note an answer that is an error; return whether the router has worked until this one."""
        self._note_in_time(admission)
        return self.missed(now_s, reason)

    def missed(self, now_s: float, reason: str) -> bool:
        """Note a message that goes its normal way; return whether the router has worked until this one."""
        is_new = not self.reason
        if is_new:
            self.failing_since_s, self.failures = now_s, 0
        self.reason = reason
        self._has_answered = False
        self.failures += 1
        self._failed_at_s = now_s
        return is_new

    def timed_out(self, now_s: float, admission: Admission, reason: str) -> tuple[bool, bool]:
        """Return whether the router has worked until this time-out, and whether it is paused for it."""
        is_new = self.missed(now_s, reason)
        self._timeouts += 1
        if admission is Admission.PROBE:
            self._is_probing = False
            self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
            self._paused_until_s = now_s + self._pause_s
            return is_new, False
        if self.is_paused or self._timeouts < TIMEOUTS_MAX:
            return is_new, False
        self.is_paused = True
        self._paused_until_s = now_s + self._pause_s
        return is_new, True

    def given_up(self, admission: Admission) -> None:
        """Note that nobody waits for the router's answer any more, for a reason that is not the router's."""
        if admission is Admission.PROBE:
            self._is_probing = False

    def is_well(self, now_s: float) -> bool:
        """Return whether the router works, as far as is known now."""
        return not self.reason or (self._has_answered and not self.is_paused and now_s >= self._failed_at_s + SETTLED_S)

    def _note_in_time(self, admission: Admission) -> None:
        self._timeouts = 0
        if admission is Admission.PROBE:
            self._is_probing = self.is_paused = False
