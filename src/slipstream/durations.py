"""How long something took or takes, in words: the same in the command line, in the console and in errors."""

from __future__ import annotations


def duration_text(ms: float) -> str:
    """`1.5 s`: short, for a table."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}" if ms / size < 100 else f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms"


def about_text(ms: float) -> str:
    """`4 min`: whole, for a sentence that somebody reads in a hurry."""
    for unit, size in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size * (2 if unit == "days" else 1):
            return f"{int(ms // size)} {unit}"
    return f"{ms:.0f} ms"
