"""Goes through a session of a page where things take their time, as a person does: looks again until it is there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.docs.examples import plain
from tests.docs.pages import Command
from tests.program import PATIENCE_S

_LOOKS = re.compile(r"slipstream (slip show|slip list|table sql|jobs list|jobs dlq list)\b")
"""Commands that change nothing: what they show may need a moment to come about."""


def follow(command: Command, typed: Callable[[str], str], story: Callable[[], str]) -> None:
    """One command, and again if it only looks, until it prints what the page says."""
    until = time.monotonic() + PATIENCE_S
    while True:
        printed = typed(command.line)
        if steady(printed) == steady(command.output):
            return
        if not _LOOKS.match(command.line) or time.monotonic() > until:
            assert steady(printed) == steady(command.output), f"{command.line}\n{story()}"
        time.sleep(0.2)


def steady(output: str) -> str:
    """Without what depends on when, where and how fast it was."""
    for pattern, instead in (
        (r".* (?:queued|in_progress): .*\n", ""),  # while it was under way
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "JOB"),
        (r"trace [0-9a-f]{32}", "trace ID"),
        (r"(?:\d{4}-\d\d-\d\d )?\b\d\d:\d\d:\d\d\b(?!\.)", "TIME"),
        (r"<?\d[\d.,]* (?:ms|s)\b", "DURATION"),
        (r"[·█─]+", ""),
    ):
        output = re.sub(pattern, instead, output)
    return plain(output)
