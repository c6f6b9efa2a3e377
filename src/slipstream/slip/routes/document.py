"""What the file of a route table holds: the values, and in which line each of them stands."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipstream.slip.routes.problems import Place, Problem, RouteTableInvalid


class Document(msgspec.Struct, frozen=True):
    """Without a file there are no lines, and problems have only their place."""

    value: object
    file: str = ""
    lines: Mapping[Place, int] = {}
    problems: tuple[Problem, ...] = ()
    """Those of the file itself, such as a key that is there twice."""

    def line(self, place: Place) -> int | None:
        """That of the place, or of the nearest around it that has one."""
        for end in range(len(place), -1, -1):
            if (line := self.lines.get(place[:end])) is not None:
                return line
        return None

    def problem(self, place: Place, text: str) -> Problem:
        return Problem(text, place, self.file, self.line(place))


def unreadable(file: str, text: str, line: int | None = None) -> RouteTableInvalid:
    """For a file of which nothing else can be said."""
    return RouteTableInvalid([Problem(text, (), file, line)])
