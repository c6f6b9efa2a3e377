"""A process that does the work of jobs: how its event loop runs, and on which bus it can be."""

from __future__ import annotations

import asyncio
from typing import Any

from slipstream.cli.bus import INSIDE


def event_loop_run(program: Any) -> None:
    from slipstream.jobs.tuning import tune  # noqa: PLC0415 - --help needs none of it

    tune()
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
            f"the bus is {driver}, whose broker is inside one process, and out of reach of {other} elsewhere: start a "
            "server with `slipstream serve`, name another bus with MESSAGE_BUS_DRIVER, or run all of it in one process "
            "with `slipstream jobs run`"
        )
