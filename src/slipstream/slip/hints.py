"""What the router has planned for a step beyond the seed's fields, in the step's `attributes`, under `slip.`.

There, and not in fields of their own, so that a slip is what every service of the platform can decode strictly. Values
are text; those that are more are JSON.
"""

from __future__ import annotations

import msgspec

from slipstream.slip.event import RoutingStep

PREFIX = "slip."

UNLESS = "slip.unless"
"""JsonLogic: when the slip gets here and it is true, the step is skipped."""
OPTIONAL = "slip.optional"
"""`true`: if the step fails for good it is skipped, and the message goes on."""
TIMEOUT_MS = "slip.timeoutMs"
"""How long one attempt at the step may take."""
NOT_BEFORE = "slip.notBefore"
"""A retry waits until then, in milliseconds since 1970."""
UNDO = "slip.undo"
"""JSON: what the step left for whoever has to undo it."""
UNDOES = "slip.undoes"
"""Of a compensating step: the id of the step it undoes."""
UNDO_BRANCHES = "slip.undoBranches"
"""JSON: the same of the branches of a parallel step, as pairs of step and record, in the order they were done."""
BRANCHES = "slip.branches"
"""JSON: the branches of a parallel step, by name, each a list of steps."""
JOIN = "slip.join"
"""`all`, `any`, or how many branches must succeed."""
WAIT = "slip.wait"
"""`approval` or `signal`: the step waits for a decision, or for a word from outside."""
DEADLINE_MS = "slip.deadlineMs"
"""How long a parallel or waiting step waits, at most."""
ON_DEADLINE = "slip.onDeadline"
"""What happens then: `fail`, `skip` or `go on`."""
PARENT = "slip.parent"
"""Of the first step of a branch: JSON, the slip and step that wait for it."""
REDO = "slip.redo"
"""Of a step that was undone and is done again: how often it was undone. What it did before does not count."""
RUN = "slip.run"
"""Of the first step: how often the slip was run again."""
COPY_OF = "slip.copyOf"
"""Of the first step: the slip that this is a copy of."""
JOINED = "slip.joined"
"""JSON: the branches whose results are in the payload."""
LATE = "slip.late"
"""Of the first step: `true` where a message is over, and only what came too late is still undone."""
DELIVERED = "slip.delivered"
"""`true`: the step has delivered the artefact itself."""


class Parent(msgspec.Struct, frozen=True, rename="camel"):
    """Whom a branch belongs to."""

    correlation_id: str
    run: int
    step: str
    branch: str


decode_parent = msgspec.json.Decoder(Parent).decode
decode_branches = msgspec.json.Decoder(dict[str, tuple[RoutingStep, ...]]).decode


def transport(step: RoutingStep) -> dict[str, str]:
    """Those that are meant for the transport."""
    if not step.attributes:
        return {}
    return {name: value for name, value in step.attributes.items() if not name.startswith(PREFIX)}
