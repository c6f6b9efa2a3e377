"""What the parts have logged about one thing."""

from __future__ import annotations

from typing import Annotated

import msgspec


class LogQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/logs`."""

    about: Annotated[str, msgspec.Meta(min_length=3, max_length=500)]
    """An id that stands in the lines: a correlationId, a job id."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=2_000)] = 200
    """The newest so many of each part."""


class PartLine(msgspec.Struct, frozen=True):
    part: str
    text: str


class LogAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v2/logs`"""

    kept: bool
    """False where no logs are kept that the console could read: `slipstream up` keeps them."""
    lines: list[PartLine]
    """Part by part, each as it was written."""
