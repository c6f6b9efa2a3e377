"""Lines of what comes in pieces."""

from __future__ import annotations

import pytest

from slipstream.up.lines import LINE_MAX, Lines


def heard(*pieces: bytes) -> list[bytes]:
    lines = Lines()
    found = [line for piece in pieces for line in lines.add(piece)]
    return [*found, *lines.end()]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"one\n\ntwo\n",),
        (b"one\r\n\r\ntwo\r\n",),
        (b"on", b"e\n", b"\ntwo"),
        (b"one\r", b"\n\r", b"\ntwo\r"),
    ],
)
def test_a_line_is_a_line_however_it_ends_and_arrives(pieces: tuple[bytes, ...]) -> None:
    assert heard(*pieces) == [b"one", b"", b"two"]


def test_a_progress_bar_is_a_line_each_time_it_is_drawn() -> None:
    assert heard(b"\r[>  ]\r[=> ]", b"\r[==>]\n", b"\rdone\n") == [b"[>  ]", b"[=> ]", b"[==>]", b"done"]


def test_a_line_is_heard_when_it_has_ended_and_not_before() -> None:
    lines = Lines()
    assert list(lines.add(b"one\ntw")) == [b"one"]
    assert list(lines.add(b"o\n")) == [b"two"]


def test_what_does_not_end_is_heard_in_parts_and_not_kept() -> None:
    lines = Lines()
    found = [line for _ in range(10) for line in lines.add(b"x" * LINE_MAX)]
    assert found == [b"x" * LINE_MAX] * 9
    assert list(lines.add(b"y\n")) == [b"x" * LINE_MAX, b"y"]
    assert list(lines.end()) == []
