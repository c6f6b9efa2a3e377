"""What `pyarrow` brings along."""

from __future__ import annotations

import sys


def do_without_numpy() -> None:
    """For a process that runs nobody's code but ours, before it imports `pyarrow`.

    Where they are installed, `pyarrow` imports numpy at once and pandas when it is given a list. It needs neither for
    what the store does with it, and they take five times as long as `pyarrow` itself (0.4 s instead of 0.08 s, and
    another second for pandas): a server that is stopped soon after its start would never come to compact.
    """
    for name in ("numpy", "pandas"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as Python wants it: not to be imported
