"""A file that never makes its writer wait."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from slipstream.cli.unblocked import unblocked

LINE = "x" * 999 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Who reads, and the file that is read from."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="ascii") as file:
        yield reading, file
        os.close(reading)


def test_what_is_written_arrives_at_the_end_at_the_latest(pipe: tuple[int, TextIO]) -> None:
    reading, file = pipe
    with unblocked(file) as text:
        text.write("one\n")
        text.write("two\n")
    assert os.read(reading, 100) == b"one\ntwo\n"


def test_what_cannot_be_encoded_is_written_as_its_number(pipe: tuple[int, TextIO]) -> None:
    reading, file = pipe
    with unblocked(file) as text:
        text.write("caf\u00e9\n")
    assert os.read(reading, 100) == rb"caf\xe9" + b"\n"


def test_who_does_not_read_misses_whole_lines_and_sees_again_what_is_written_once_he_has_caught_up(
    pipe: tuple[int, TextIO],
) -> None:
    reading, file = pipe
    with unblocked(file, room=10_000) as text:
        for _ in range(1_000):  # more than a pipe and the room have place for
            text.write(LINE)
        found = b""
        while text.is_behind:
            if select.select([reading], [], [], 0.01)[0]:
                found += os.read(reading, 1 << 16)
        text.write("again\n")
        while not found.endswith(b"again\n"):
            found += os.read(reading, 1 << 16)
    lines = found.decode().splitlines(keepends=True)
    assert set(lines) == {LINE, "again\n"}, "none of them in part"
    assert len(lines) < 1_000


def test_a_reader_who_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file, unblocked(file) as text:
        for _ in range(2_000):
            text.write(LINE)
    assert not [thread for thread in threading.enumerate() if thread.name == "slipstream-print"]
