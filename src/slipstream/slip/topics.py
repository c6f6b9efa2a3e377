"""The topics of routing slips."""

from __future__ import annotations

INGRESS = "internal.ingress.v1"
"""New events, which have no slip yet."""
ROUTER = "internal.router.v1"
"""Events that come back from a step."""
DEAD_LETTERS = "internal.deadletter.v1"
EGRESS = "egress.deliver.v1"
CHUNKS = "llm.chunk.v1"
PROGRESS = "slip.events"
SIGNALS = "slip.signals"


def default_topic(step_id: str) -> str:
    """Where a step is done, unless the slip says otherwise."""
    return f"internal.{step_id}.v1"


def undo_topic(step_id: str) -> str:
    """Where a step is undone."""
    return f"internal.{step_id}.undo.v1"
