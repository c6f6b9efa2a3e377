"""What is being handled here and now: for whatever is published, and logged, meanwhile.

Set by the bus for each message, in the context of its handler; functions in threads have it, too. Those who know more
(a step of a slip, a task of a job) note that.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Detail: TypeAlias = str | int

HANDLED: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("handled", default=None)
"""The attributes of the message that is being handled here."""

NOTED: contextvars.ContextVar[Mapping[str, Detail] | None] = contextvars.ContextVar("noted", default=None)
"""What else is known of it."""

OF_MESSAGES = ("correlationId", "stepId")
"""What attributes tell of a message."""


def note(**details: Detail) -> None:
    """Until the handler of the message ends, or somebody notes something else under the name."""
    NOTED.set({**(NOTED.get() or {}), **details})


@contextlib.contextmanager
def noting(**details: Detail) -> Iterator[None]:
    """The same for what is no message, and only until the end of the `with`."""
    token = NOTED.set(details)
    try:
        yield
    finally:
        NOTED.reset(token)


def handling() -> dict[str, Detail]:
    """What is known of what is being handled: `correlationId`, `stepId`, `attempt`, `jobId`, `resourceId`, as far as
    there are any."""
    handled, noted = HANDLED.get(), NOTED.get()
    if handled is None and noted is None:
        return {}
    found: dict[str, Detail] = {name: handled[name] for name in OF_MESSAGES if handled.get(name)} if handled else {}
    return {**found, **(noted or {})}
