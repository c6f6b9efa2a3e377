"""A process that does the work of jobs: how its event loop runs, and on which bus it can be."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

from slipstream.cli.bus import INSIDE

SWITCH_INTERVAL_S = 0.0005
"""As in the server: the threads that sync must not wait for the loop for longer than they sync."""
GC_OBJECTS = 20_000
"""That are made before the garbage collector looks at them: with Python's 700 it took a fourteenth of the time, and
what a task makes is gone with it anyway."""


def event_loop_run(program: Any) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 50)
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(program)
    else:
        uvloop.run(program)


def check_bus(other: str) -> None:
    from slipstream.bus import InvalidArgument, load_settings  # noqa: PLC0415

    driver = load_settings({}).driver
    if driver in INSIDE:
        raise InvalidArgument(
            f"MESSAGE_BUS_DRIVER is {driver}, whose broker is inside one process, and out of reach of {other} "
            "elsewhere: run all of it with `slipstream jobs run`, or name a bus for several processes"
        )
