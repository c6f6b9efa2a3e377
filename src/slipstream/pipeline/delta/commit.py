"""Commits beside those of others: upkeep may change a table while the pipeline writes it, and the other way round."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from slipstream.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

ATTEMPTS = 20

T = TypeVar("T")


class TableTooBusy(PipelineError):
    """Others write a table so often that no commit of ours fits in between."""


def repeated(name: str, look: Callable[[], DeltaTable], commit: Callable[[DeltaTable], T]) -> T:
    """Of two who commit at once, the second is refused if it may have looked at what the first has changed. Then once
    more, on what is there now: `look` gives a handle that knows of no commit of its own that has failed."""
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

    problem = ""
    for _ in range(ATTEMPTS):
        try:
            return commit(look())
        except CommitFailedError as error:
            problem = str(error).partition("\n")[0]
            log.debug("%s was changed meanwhile, trying again: %s", name, problem)
    raise TableTooBusy(
        f"{name} is written to so often that {ATTEMPTS} attempts at a commit did not fit in between: {problem}; "
        "try again when there is less to do"
    )
