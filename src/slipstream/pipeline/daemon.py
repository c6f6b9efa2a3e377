"""Spark's Python daemon, with what our tasks need already in it.

Spark forks its Python workers from a daemon. What tasks import, Arrow and pandas above all, takes each of them four
seconds on a slow machine, and there are four and more in the first batch; here the daemon has it, once.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark.daemon import manager

TASKS = "pyspark.worker"
"""What runs tasks; the daemon is also asked for processes that only plan, which need nothing of it."""
NEEDED = ("slipstream.pipeline.queries.task", "slipstream.pipeline.decode", "slipstream.pipeline.source", TASKS)

if __name__ == "__main__":
    if TASKS in sys.argv:
        for name in NEEDED:
            importlib.import_module(name)
        # A worker collects garbage after every task, and need not look for it in what was imported here.
        gc.collect()
        gc.freeze()
    manager()
