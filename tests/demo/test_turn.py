"""One demonstration at a time."""

from __future__ import annotations

import threading
from pathlib import Path

from slipstream.demo.turn import turn


def test_the_second_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    story: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with turn(tmp_path / "demo", waits.set):
            story.append("second begins")

    beside = threading.Thread(target=second)
    with turn(tmp_path / "demo", lambda: story.append("nobody is there to wait for")):
        beside.start()
        waits.wait()
        story.append("first ends")
    beside.join()
    assert story == ["first ends", "second begins"]
