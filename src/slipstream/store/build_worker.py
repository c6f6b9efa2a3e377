"""The compaction process: builds segments until the broker that started it is gone.

Not imported by anything in the broker: `build_process` starts it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path

from slipstream.store.arrow import do_without_numpy
from slipstream.store.build_process import BuildAnswer, BuildRequest, receive, send
from slipstream.store.builder import build_segments


def main() -> None:
    """The life of the process: one request after the other, until the broker is gone, however it ends."""
    do_without_numpy()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C goes to all of a terminal's processes; the broker decides
    requests: queue.SimpleQueue[BuildRequest] = queue.SimpleQueue()

    def listen() -> None:
        while (request := receive(sys.stdin.buffer, BuildRequest)) is not None:
            requests.put(request)
        os._exit(0)  # also in the middle of a segment: nobody waits for it any more

    threading.Thread(target=listen, daemon=True).start()
    while True:
        send(sys.stdout.buffer, _answer(requests.get()))


def _answer(request: BuildRequest) -> BuildAnswer:
    complaints: list[str] = []
    try:
        segments = build_segments(Path(request.directory), request.journals, request.orders, complaints=complaints)
    except Exception as error:  # noqa: BLE001 - whatever it is, the broker is told
        if isinstance(error, OSError) and error.errno and error.strerror:
            where = f": {error.filename}" if error.filename else ""
            return BuildAnswer([], complaints, f"{error.strerror}{where}", error.errno)
        return BuildAnswer([], complaints, f"{type(error).__name__}: {error}")
    return BuildAnswer(segments, complaints)
