"""Commits: messages that are staged in several requests, and then stored together, once."""

from __future__ import annotations

from typing import Annotated

import msgspec

Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a commit, counted by its writer."""
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class StageQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """The parameters of `POST /v2/staged`. The body is a message, an array of messages, or lines of them
    (application/x-ndjson)."""

    writer: str
    """Who will commit them."""
    sequence: Sequence
    """Of that commit."""
    topic: str
    attempt: str = ""
    """Which of the writer's attempts at that commit this is. With the first part of another one, those of the attempts
    before are forgotten."""


class Staged(msgspec.Struct, frozen=True):
    """`POST /v2/staged`: the messages wait in memory. A restart, or an hour, forgets them."""

    staged: str
    """To be named by the commit."""
    messages: int
    bytes: int
    """Of the body; what counts for `max_staged_bytes`."""


class UnstageRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/unstage`: a commit that will not be made. What was staged for it makes room."""

    writer: str
    sequence: Sequence
    staged: list[str] | None = None
    """Only these; all that was staged by this writer for this sequence if it is not said."""


class Unstaged(msgspec.Struct, frozen=True):
    """What was forgotten; 0 where nothing was there."""

    parts: int
    bytes: int


class ConsumedWindow(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True, rename={"from_": "from"}
):
    """What was read of a topic, and is done with: offsets from `from` up to, and without, `to`."""

    topic: str
    group: str
    """It must have finished everything below `from`, and hold nothing; with the commit it goes on from `to`. One that
    is not there is made, and was at the beginning."""
    from_: Offset
    to: Offset
    partition: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Only this one; otherwise all."""
    incarnation: str = ""
    """Of the topic that was read, so that one that was created again is not taken for it; any if it is not said."""


class CommitRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/commit`: all messages of all these parts are stored, or none; and it is remembered that the writer has
    come this far, in the same step."""

    writer: str
    sequence: Sequence
    """Higher than that of the writer's last commit; it need not be the next."""
    staged: list[str] = []
    """What was staged by this writer for this sequence; none at all is a commit, too."""
    consumed: list[ConsumedWindow] = []
    """What these messages were made of: groups have it behind them in the same step."""


class CommitResponse(msgspec.Struct, frozen=True):
    committed: bool
    """false: the writer had committed this sequence, or a higher one, before; nothing was stored."""


class WriterInfo(msgspec.Struct, frozen=True):
    """`GET /v2/writers/{writer}`"""

    writer: str
    sequence: int | None
    """Of its last commit; null for a writer that has made none, or none for `writer_ttl_ms`."""
