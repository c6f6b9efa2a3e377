"""What is wrong with a route table: every problem with its place, so that a file is put right in one go."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes, from the outermost on."""


class Problem(msgspec.Struct, frozen=True):
    """Example: `routes.yaml:12: routes.chat.message.v1.steps[1].when: unknown operator "fooo"`"""

    text: str
    place: Place = ()
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line is not None else self.file
        said = ": ".join(part for part in (where, place_text(self.place), self.text) if part)
        return " ".join(said.splitlines())  # a key may have line breaks


def place_text(place: Place) -> str:
    """`routes.chat.message.v1.steps[1].when`"""
    words = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(words).removeprefix(".")


class RouteTableInvalid(ValueError):
    """This is no route table. `str` has a line for each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """For the end of a message: the known words nearest to one that is not."""
    near = difflib.get_close_matches(word, list(known), n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
