"""The files that hold a partition, for readers on the same machine."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipstream.api.consume import Position


class SegmentsQuery(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True, rename={"from_": "from"}
):
    """The parameters of `GET /v2/topics/{topic}/segments`."""

    partition: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Needed where the topic has more than one."""
    from_: Position | None = None
    """The first offset; absent: the oldest there is."""
    to: Position | None = None
    """Before this offset; absent: all that is there now."""


class SegmentFile(msgspec.Struct, frozen=True):
    """One Arrow IPC file with the columns offset, timestamp_ms, key, value and meta."""

    path: str
    """Relative to the directory."""
    first_offset: int
    """May be lower than what was asked for, or than what retention has left."""
    last_offset: int
    count: int
    file_bytes: int
    crc: int
    """CRC-32C of the file."""
    pages: list[int]
    """The row each record batch of the file starts at."""


class SegmentList(msgspec.Struct, frozen=True):
    """`GET /v2/topics/{topic}/segments`"""

    directory: str
    """The data directory, as the server sees it; empty where the server keeps nothing on disk."""
    token: str
    """The second line of the file LOCK in that directory, drawn at each start of the server: whoever finds it there
    sees the same directory."""
    incarnation: str
    """Differs for a topic that was deleted and created again."""
    partition: int
    segments: list[SegmentFile]
    """Those that have something of the range, oldest first."""
    next_offset: int
    """From here on the messages are in no segment yet, and are read with `GET /v2/topics/{topic}/messages`."""
