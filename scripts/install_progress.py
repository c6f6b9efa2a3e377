"""Shows how an installation goes: reads what pip says, and tells it in a line that moves, or in a few that do not.

    pip install --progress-bar off -r requirements.lock 2>&1 | python3 scripts/install_progress.py requirements.lock

For the Python that the machine has, before anything is installed: it needs the standard library only.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

COLLECTING = re.compile(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
INSTALLING = re.compile(r"Installing collected packages: (.+)")
REFRESH_S = 0.5
WIDTH = 78


class Show:
    """One line, drawn over itself on a terminal."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._out = out
        self._total = total
        self._is_terminal = out.isatty()
        self._began = time.monotonic()
        self._text = ""
        self._count = 0
        self._has_failed = False
        """From then on every word may be the reason."""

    def hear(self, line: str) -> None:
        if self._has_failed or line.startswith("ERROR"):
            self._clear()
            self._has_failed = True
            self._print(line.rstrip())
        elif line.startswith("WARNING: Retrying"):
            self._text = "the network is slow or away, trying again"
        elif found := COLLECTING.match(line.strip()):
            self._count += 1
            self._text = f"collecting {self._count} of about {self._total}: {found[1]}"
            if self._is_terminal:
                self.draw()
            elif self._count == 1:
                self._print(f"  collecting about {self._total} libraries")
        elif found := INSTALLING.match(line.strip()):
            self._text = f"installing {len(found[1].split(', '))} libraries"
            if not self._is_terminal:
                self._print(f"  {self._text}")
        elif line.startswith("Successfully installed"):
            self._clear()
            self._print(f"  {len(line.split()) - 2} libraries installed, in {self._seconds} s")

    def draw(self) -> None:
        if self._is_terminal and self._text:
            self._out.write("\r" + f"  {self._text} ({self._seconds} s)"[:WIDTH].ljust(WIDTH))
            self._out.flush()

    def end(self) -> None:
        self._clear()

    @property
    def _seconds(self) -> int:
        return int(time.monotonic() - self._began)

    def _clear(self) -> None:
        if self._is_terminal and self._text:
            self._out.write("\r" + " " * WIDTH + "\r")
            self._out.flush()
        self._text = ""

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def pinned(path: Path) -> int:
    """How many libraries a lock file names."""
    return len(re.findall(r"^[A-Za-z0-9._-]+==", path.read_text(), re.MULTILINE))


def main() -> None:
    show, ended = Show(sys.stdout, pinned(Path(sys.argv[1]))), threading.Event()

    def tick() -> None:
        while not ended.wait(REFRESH_S):
            show.draw()

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        for line in sys.stdin:
            show.hear(line)
    except KeyboardInterrupt:  # pip hears of it too, and ends
        sys.exit(130)
    finally:
        ended.set()
        ticking.join()
        show.end()


if __name__ == "__main__":
    main()
