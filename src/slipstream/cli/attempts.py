"""The attempts at a message as a table, with their tracebacks under it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rich.markup import escape

from slipstream.cli.output import Output
from slipstream.cli.values import time_text
from slipstream.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slipstream.api import AttemptInfo


def show_history(output: Output, history: Sequence[AttemptInfo]) -> None:
    """Print nothing where no attempt is known."""
    if not history:
        return
    output.say("")
    output.table(
        [">ATTEMPT", "ENDED", ">TOOK", "WORKER", "ERROR"],
        [
            (
                each.number,
                time_text(each.ended_ms),
                "-" if each.duration_ms is None else duration_text(each.duration_ms),
                each.worker,
                each.error,
            )
            for each in history
        ],
    )
    for before, after in itertools.pairwise(history):
        first, last = before.number + 1, after.number - 1
        if first <= last:
            missing = f"attempt {first} was" if first == last else f"attempts {first} to {last} were"
            output.say(f"{missing} left out")
    for each in history:
        if each.traceback:
            output.say(f"\nattempt {each.number}:")
            output.out.print(escape(each.traceback.rstrip()), soft_wrap=True, highlight=False)
