"""A replay that is composed: what was asked, of which versions of which tables, and the files that hold it."""

from __future__ import annotations

import datetime as dt

import msgspec

from slipstream.pipeline.replay.asked import Asked, SlipsAsked


class Part(msgspec.Struct, frozen=True):
    """A file of the replay. Its rows follow those of the part before it."""

    path: str
    """Relative to the folder of the replay."""
    rows: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Written when all its parts are there, and never changed."""

    id: str
    asked: Asked | SlipsAsked
    versions: dict[str, int]
    """Table → the version that was read."""
    count: int
    left_out: int
    """Rows that were selected and are not sent, as is said of their table."""
    newest: dict[str, int] = {}
    """Topic → the greatest offset of what came from there: what a table gets later is behind it, since a topic is read
    up to one offset in all of its partitions."""
    parts: tuple[Part, ...]
    made_at: dt.datetime

    @property
    def writer(self) -> str:
        """As the broker knows it. Nobody else has this name: a part of the id is drawn at random, so that the same
        question over other tables is not taken for one that was answered."""
        return f"replay:{self.id}"


class Reached(msgspec.Struct, frozen=True):
    """How far it has come, as we know it. The broker, or the store of the slips, knows better."""

    rows: int = 0
    counts: dict[str, int] = {}
    """What became of the rows, where that is not the same for all."""


class PassedOver(msgspec.Struct, frozen=True):
    """A message that the server will never take, whoever asks it."""

    number: int
    """Of the messages of the replay, from 1 on: with it behind us, so many are."""
    place: str
    """Which it had when it was first stored, such as orders/0/17."""
    reason: str


class Finished(msgspec.Struct, frozen=True):
    at: dt.datetime
    rows: int
    counts: dict[str, int] = {}
