"""A bar for what takes a while."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slipstream.cli.output import Output


@contextlib.contextmanager
def bar(output: Output, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """To be told how many are done. Gone at the end, and never there where nobody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = output.as_json or not sys.stderr.isatty()
    with Progress(*columns, console=output.err, transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
