"""The log of a program that has not configured logging."""

from __future__ import annotations

import logging

OURS = "slipstream"


def log_to_stderr() -> None:
    """Write what Slipstream logs to stderr, from `info` on, unless the program has configured logging itself.

    For functions that are the whole program: a worker that prints nothing until a message comes looks as if it hung.
    """
    ours = logging.getLogger(OURS)
    if logging.getLogger().handlers or ours.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
