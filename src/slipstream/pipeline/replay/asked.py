"""What is asked for: the same question finds the same replay."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

NAME_CHARS = 12
"""Of the digest by which a question is known: enough for the replays of a lifetime."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="messages"):
    """Rows of a table, to be messages once more."""

    table: str
    where: str = ""
    """An expression of Spark SQL over its columns; empty: all rows."""
    to: str = ""
    """The topic; empty: where each came from."""
    limit: int = 0
    """The first so many; 0: all."""

    @property
    def name(self) -> str:
        return _name(self)


class SlipsAsked(msgspec.Struct, frozen=True, kw_only=True, tag="slips"):
    """Runs of slips that failed at a step, to be run again."""

    failed_at: str
    from_step: str
    """The first step to do again: the one that failed, or one before it."""
    since: str = ""
    until: str = ""
    """By when they ended, as somebody typed it: two hours ago is another time when it is asked again, and the same
    question."""
    event_type: str = ""
    limit: int = 0

    @property
    def name(self) -> str:
        return _name(self)


Question: TypeAlias = Asked | SlipsAsked


def _name(question: Question) -> str:
    """The same for the same question, and not for another."""
    return hashlib.sha256(msgspec.json.encode(question)).hexdigest()[:NAME_CHARS]
