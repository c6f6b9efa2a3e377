"""Numbers of things in words: the same in the command line, in the console and in errors."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
