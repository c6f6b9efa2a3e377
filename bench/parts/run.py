"""One run of the bench: its options, and the rows of its table."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec
from rich.console import Console

from bench.load import LoadResult

PARTITIONS = 4

console = Console()


class Row(msgspec.Struct, kw_only=True):
    what: str
    p50: str = ""
    p99: str = ""
    rate: str = ""
    load: str = ""
    """Whether the row shows a burst, of so many seconds or messages, or a sustained load."""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


class Run(msgspec.Struct, frozen=True):
    """The options of one run of the bench."""

    scratch: Path
    """The folder of all data directories: its disk is the one that is measured."""
    rounds: int
    seconds: float
    quick: bool
    sync_ms: float

    @property
    def burst(self) -> str:
        return f"burst, {self.seconds:g} s"


def load_row(
    what: str,
    results: list[LoadResult],
    load: str,
    baseline: list[LoadResult] | None = None,
    target: float | None = None,
) -> Row:
    """Return a row of the medians of all rounds; with a baseline, also of the ratio to it in the same round."""
    if deferred := sum(result.deferred for result in results):
        load += f"; 429 {deferred:,} times"
    row = Row(
        what=what,
        p50=f"{statistics.median(r.p50_ms for r in results):.2f} ms",
        p99=f"{statistics.median(r.p99_ms for r in results):.2f} ms",
        rate=f"{statistics.median(r.rate for r in results):,.0f}/s",
        load=load,
    )
    if baseline is not None:
        ratio = statistics.median(ours.rate / other.rate for ours, other in zip(results, baseline, strict=True))
        row.ratio = f"{ratio:.2f}"
        if target is not None:
            row.target, row.met = f"≥ {target:.2f}", ratio >= target
    return row
