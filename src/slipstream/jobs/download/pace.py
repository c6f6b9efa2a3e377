"""How fast a download goes: one that only drips holds a place that others could use."""

from __future__ import annotations

from slipstream.jobs.failure import Code, TaskFailed


class Pace:
    """Watches that enough bytes come, on average over a while. It has no timer: it is asked when bytes have come, and
    for when none come there is the read timeout."""

    __slots__ = ("_bytes", "_least_per_s", "_span_s", "_waited_s")

    def __init__(self, slowest_bytes_per_s: int, slowest_ms: int) -> None:
        self._least_per_s = slowest_bytes_per_s
        self._span_s = slowest_ms / 1000
        self._waited_s = 0.0
        self._bytes = 0

    def arrived(self, size: int, waited_s: float) -> None:
        """So many bytes came after so long. Only waiting counts: that our own disk is slow is not the server's fault.
        Raises TaskFailed."""
        self._bytes += size
        self._waited_s += waited_s
        if self._waited_s < self._span_s:
            return
        if self._bytes < self._least_per_s * self._waited_s:
            raise TaskFailed(
                Code.DOWNLOAD_TIMEOUT,
                f"only {self._bytes} bytes came in {self._waited_s:.1f} s; the slowest that is put up with is "
                f"{self._least_per_s} a second (JOBS_SLOWEST_BYTES_PER_S)",
                is_retryable=True,
            )
        self._waited_s, self._bytes = 0.0, 0
