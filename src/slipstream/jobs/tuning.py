"""How Python is set in a process that downloads: of the command line, or of Spark."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
"""As in the server: the threads that sync must not wait for the loop for longer than they sync."""
GC_OBJECTS = 20_000
"""That are made before the garbage collector looks at them: with Python's 700 it took a fourteenth of the time, and
what a task makes is gone with it anyway."""


def tune() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 50)
