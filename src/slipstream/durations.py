"""How long something took or takes, in words: the same in the command line, in the console and in errors."""

from __future__ import annotations


def duration_text(ms: float) -> str:
    """`1.5 s`: short, for a table."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}" if ms / size < 100 else f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms"
