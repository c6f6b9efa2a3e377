"""Slips over HTTP: where messages are on their itineraries, and what a person can do about it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class SlipQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/slips`."""

    state: Literal["", "under-way", "waiting", "stuck", "completed", "dead-lettered"] = ""
    """`waiting` is for somebody's word, `stuck` has not moved for a while; empty for all."""
    search: str = ""
    """A part of the correlationId or of the type."""
    type: str = ""
    """Such as `chat.message.v1`; empty for all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50
    branches: bool = False
    """Also the branches of parallel steps, which are messages of their own."""


class SlipSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    correlation_id: str
    type: str
    state: str
    """`under way`, `completed`, `dead-lettered` or `dropped`."""
    step: str
    """Where it is, or where it failed."""
    going: str
    """What goes on there: `approval`, `at work`, `not taken up` and so on."""
    reason: str
    begun_ms: int
    moved_ms: int
    ended: bool


class SlipList(msgspec.Struct, frozen=True):
    slips: list[SlipSummary]
    """Those that moved last first; of those that are stuck, the longest unmoved."""
    more: bool
    types: list[str]
    """Of all that are in this state."""


class SlipDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The timeline as `slipstream slip show --json` has it, with the payload and the jobs."""

    correlation_id: str
    type: str
    state: str
    begun_at: str
    moved_at: str
    standing: dict[str, Any]
    """What is going on: `going`, `step`, `since`, `until`, `reason`, `by`, `branches`, `error`, `againFrom`."""
    ended_at: str | None = None
    timeout_at: str | None = None
    trace_id: str = ""
    branch: str = ""
    parent: str = ""
    runs: list[Any] = []
    """From the plan to an end, each with its `rows` (one for each attempt at a step) and what it is `undoing`."""
    payload: Any = None
    """Of the newest message that is kept."""
    envelope: dict[str, Any] | None = None
    """Of the same message: its slip as it was then."""
    jobs: list[str] = []
    """Ids of download jobs that its steps have submitted, as far as the payload names them."""


class SignalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    step: str
    decision: Literal["approve", "deny"] = "approve"
    by: str = ""
    note: str = ""
    data: Any = None
    """For the steps that follow."""


class SignalTaken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    correlation_id: str
    step: str
    decision: str
    waits: bool
    """False where the message has not come to the step yet: the word is kept for it."""


class RerunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"step": "from"}):
    step: str
    """The first step to do again."""


class RerunTaken(msgspec.Struct, frozen=True, kw_only=True, rename={"correlation_id": "correlationId", "step": "from"}):
    correlation_id: str
    step: str
    run: int


class CancellationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""


class CancellationTaken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    correlation_id: str


class StepInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    step: str
    paused: bool
    reason: str = ""
    until_ms: int | None = None
    """When it is resumed by itself."""


class StepList(msgspec.Struct, frozen=True):
    steps: list[StepInfo]
    """Those that are paused, and those at which a message was seen lately."""


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Resumed by itself after this time; absent: when somebody resumes it."""
