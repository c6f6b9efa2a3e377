"""Building segments in another process, asked through a pipe; `build_worker` is what runs there."""

from __future__ import annotations

import contextlib
import logging
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from slipstream.store.builder import SegmentOrder, build_segments
from slipstream.store.checkpoint import SegmentInfo

log = logging.getLogger(__name__)

NICE = 15
"""The broker comes first: at 5 this still doubled the p99 of durable produces on two busy cores."""


class ProcessBuilder:
    """Builds in a process of its own, started when it is first needed and gone when this one is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def build(self, directory: Path, journals: list[int], orders: list[SegmentOrder]) -> list[SegmentInfo]:
        if self._process is None:
            # Modest from the first: the imports alone, at full strength, show in the broker's slowest answers.
            program = f"import os; os.nice({NICE}); from slipstream.store.build_worker import main; main()"
            command = [sys.executable, "-c", program]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, BuildRequest(str(directory.absolute()), journals, orders))
            answer = receive(self._process.stdout, BuildAnswer)
        except (BrokenPipeError, msgspec.DecodeError):
            answer = None
        if answer is None:
            # Somebody killed it, most likely for its memory. That is no reason for the broker to stop taking messages.
            code = self._process.wait()
            log.warning("the compaction process ended with exit code %d; this time segments are built here", code)
            self.close()
            return build_segments(directory, journals, orders)
        for complaint in answer.complaints:
            log.error("%s", complaint)
        if answer.error:
            raise OSError(answer.errno, answer.error) if answer.errno else OSError(answer.error)
        return answer.segments

    def close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # which it takes as its end
        process.wait()
        process.stdout.close()


class BuildRequest(msgspec.Struct, array_like=True):
    directory: str
    journals: list[int]
    orders: list[SegmentOrder]


class BuildAnswer(msgspec.Struct, array_like=True):
    segments: list[SegmentInfo]
    complaints: list[str]
    error: str = ""
    errno: int = 0
    """The number of the error, where the system has said one."""


_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
MessageT = TypeVar("MessageT", bound=msgspec.Struct)


def send(pipe: IO[bytes], message: msgspec.Struct) -> None:
    data = _encode(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[MessageT]) -> MessageT | None:
    """The next message; None when the other side is gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return msgspec.msgpack.decode(pipe.read(_LENGTH.unpack(head)[0]), type=kind)
