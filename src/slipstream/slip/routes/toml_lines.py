"""In which line of a TOML file each value stands, which Python's own reader does not tell.

Only for text that `tomllib` has read without a complaint: what is wrong with it has been said by then, and all that is
left to do is to tell keys, brackets and strings apart.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

from slipstream.slip.routes.problems import Place

_TOKEN: Final = re.compile(
    r"""
      (?P<space> [ \t\r]+ | \#[^\n]* )
    | (?P<text> \"{3} (?: \\. | [^\\] )*? \"{3,5} (?!\") | '{3} .*? '{3,5} (?!')
              | \" (?: \\. | [^\"\\\n] )* \" | ' [^'\n]* ' )
    | (?P<mark> [\[\]{},=\n] )
    | (?P<bare> [^\s\[\]{},=\#\"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)


def lines_of_toml(text: str) -> dict[Place, int]:
    """By place: of a key its own line, of a table that of its heading, of something in a list where it begins."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [found for found in _TOKEN.finditer(text) if found.lastgroup != "space"]
        self._next = 0
        self._line = 1
        self._counted_to = 0
        self._lengths: dict[Place, int] = {}
        """Of the lists made of `[[headings]]`: a heading after them means the last of each."""
        self.lines: dict[Place, int] = {(): 1}

    def scan(self) -> dict[Place, int]:
        table: Place = ()
        while self._next < len(self._tokens):
            if self._peek() == "\n":
                self._next += 1
            elif self._peek() == "[":
                table = self._heading()
            else:
                self._pair(table)
        return self.lines

    def _heading(self) -> Place:
        line = self._line_of(self._next)
        # The brackets of [[…]] touch each other.
        many = self._text.startswith("[[", self._tokens[self._next].start())
        self._next += 2 if many else 1
        *around, last = self._key("]")
        self._next += 2 if many else 1
        place = self._enter((), around, line)
        place = (*place, last) if many else self._enter(place, [last], line)
        if many:
            self.lines.setdefault(place, line)
            index = self._lengths.get(place, 0)
            self._lengths[place] = index + 1
            place = (*place, index)
        self.lines[place] = line
        return place

    def _pair(self, table: Place) -> None:
        line = self._line_of(self._next)
        *around, last = self._key("=")
        self._next += 1
        place = (*self._enter(table, around, line), last)
        self.lines[place] = line
        self._value(place)

    def _enter(self, place: Place, keys: list[str], line: int) -> Place:
        for key in keys:
            place = (*place, key)
            self.lines.setdefault(place, line)
            if place in self._lengths:
                place = (*place, self._lengths[place] - 1)
        return place

    def _value(self, place: Place) -> None:
        match self._peek():
            case "[":
                self._list(place)
            case "{":
                self._inline_table(place)
            case _:
                # A date and a time may have a space between them.
                while self._next < len(self._tokens) and self._peek() not in {",", "]", "}", "\n"}:
                    self._next += 1

    def _list(self, place: Place) -> None:
        self._next += 1
        index = 0
        while (mark := self._peek()) != "]":
            if mark in {",", "\n"}:
                self._next += 1
                continue
            self.lines[*place, index] = self._line_of(self._next)
            self._value((*place, index))
            index += 1
        self._next += 1

    def _inline_table(self, place: Place) -> None:
        self._next += 1
        while (mark := self._peek()) != "}":
            if mark in {",", "\n"}:
                self._next += 1
            else:
                self._pair(place)
        self._next += 1

    def _key(self, end: str) -> list[str]:
        """`a."b.c".d`, read by those who know what quotes and escapes mean."""
        start = self._tokens[self._next].start()
        while self._peek() != end:
            self._next += 1
        found: object = tomllib.loads(self._text[start : self._tokens[self._next].start()] + "= 0")
        keys: list[str] = []
        while isinstance(found, dict):
            ((key, found),) = found.items()
            keys.append(key)
        return keys

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _line_of(self, index: int) -> int:
        start = self._tokens[index].start()
        self._line += self._text.count("\n", self._counted_to, start)
        self._counted_to = start
        return self._line
