"""The console's first page: what is going on, what is wrong, and which parts run."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from slipstream.api.events import TopicStats

Level: TypeAlias = Literal["error", "warning", "notice"]

PartState: TypeAlias = Literal["starting", "running", "crashed", "waiting", "stopped"]

Source: TypeAlias = Literal["slips", "jobs", "tables"]

HitKind: TypeAlias = Literal["slip", "job", "message", "topic", "group", "step", "table"]


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """A person has seen a problem and takes care of it."""

    by: str
    at_ms: int


class AcknowledgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v2/acknowledgements`"""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    """The `key` of a problem of the overview."""
    by: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """The person who has seen it."""


class AcknowledgementQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of `DELETE /v2/acknowledgements`."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class DeadLetterCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that nobody has sent back or discarded, by what they are."""

    messages: int = 0
    """In the dead-letter topics of the broker and of the bus."""
    slips: int = 0
    downloads: int = 0
    """Resources of download jobs."""


class ProblemMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a group that is the problem: it can be retried or rejected."""

    topic: str
    group: str
    partition: int
    offset: int


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should look at."""

    level: Level
    """`error` needs attention now, `warning` soon, `notice` is information."""
    text: str
    detail: str = ""
    """What to do about it, where that can be said."""
    link: str = ""
    """Where in the console it is seen, such as `#/groups/orders/billing`."""
    action: str = "Open"
    """The label of the button that leads there: what a person can do about it."""
    key: str = ""
    """The identity of the problem, as long as it lasts; for `POST /v2/acknowledgements`."""
    mark: int = 0
    """How bad it is, such as the number of dead letters: an acknowledged problem is shown again when this grows."""
    since_ms: int = 0
    """When the console has seen it first."""
    message: ProblemMessage | None = None
    acknowledged: Acknowledgement | None = None
    """Who has acknowledged it; absent if nobody has."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A process that `slipstream up` has started."""

    name: str
    state: PartState
    pid: int | None = None
    url: str = ""
    restarts: int = 0
    since_ms: int = 0
    """When it came into this state."""
    reason: str = ""
    log: list[str] = []
    """The last lines of its log."""


class PartList(msgspec.Struct, frozen=True):
    parts: list[Part]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last ten minutes, a value for every five seconds; the oldest first."""

    time_ms: list[int]
    produced_per_s: list[float]
    acked_per_s: list[float]
    oldest_ms: list[int]
    in_flight: list[int]
    dead_letters: list[int]


class StillGroup(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    group: str
    still_ms: int
    """For so long it has had work, and finished none of it."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on now. While the broker is away, the numbers are the last that were known."""

    time_ms: int
    produced_per_s: float
    acked_per_s: float
    oldest_ms: int
    """How long the message has waited that waits longest."""
    in_flight: int
    dead_letters: int
    lag: int
    problems: list[Problem]
    """The worst first; none where all is quiet."""
    parts: list[Part]
    topics: list[TopicStats]
    still: list[StillGroup] = []
    """Groups that stand still for longer than `CONSOLE_STANDING_MS`."""
    sources: list[Source] = []
    """The sources that this console has beside the broker; it has no page for the others."""
    dead_letter_counts: DeadLetterCounts = DeadLetterCounts()
    """The parts of `dead_letters`."""


class OverviewQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/overview`."""

    interval_ms: Annotated[int, msgspec.Meta(ge=1_000, le=60_000)] = 1_000
    """With `Accept: text/event-stream`: how often."""


class OverviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """As JSON both at once; as server-sent events one `history`, and then an `overview` every `interval_ms`."""

    history: History
    overview: Overview


class SearchQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/search`."""

    q: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    """A correlationId, the id of a job, `topic/partition/offset`, a topic, group, step or table, or an idempotency
    key; the beginning of a name is enough."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    kind: HitKind
    text: str
    link: str


class SearchAnswer(msgspec.Struct, frozen=True):
    hits: list[SearchHit]
    """The best first."""
