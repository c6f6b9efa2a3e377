"""Every setting of the supervisor, once: its name in the environment, type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slipstream.variables import SettingInfo, describe, load, variable


class InvalidUp(ValueError):
    """A setting of the supervisor makes no sense."""


class UpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How patient it is with its parts, and how much it keeps of what they say."""

    stop_timeout_ms: Annotated[
        int, variable("UP_STOP_TIMEOUT_MS", "How long a part may take to end before it is killed.", ge=0)
    ] = 30_000
    restart_base_ms: Annotated[
        int, variable("UP_RESTART_BASE_MS", "Pause before a part that crashed is started again; doubling.", ge=0)
    ] = 1_000
    restart_longest_ms: Annotated[int, variable("UP_RESTART_LONGEST_MS", "Longest such pause.", ge=0)] = 30_000
    well_after_ms: Annotated[
        int,
        variable("UP_WELL_AFTER_MS", "After a part ran for so long, the pauses begin with the shortest again.", ge=1),
    ] = 60_000
    health_every_ms: Annotated[
        int, variable("UP_HEALTH_EVERY_MS", "How often a part that was ready is asked whether it still is.", ge=1)
    ] = 5_000
    dead_after: Annotated[
        int,
        variable(
            "UP_DEAD_AFTER",
            "A part that so often in a row was not alive, or did not answer, is killed and started again; 0: never.",
            ge=0,
        ),
    ] = 12
    log_bytes: Annotated[
        int, variable("UP_LOG_BYTES", "A part's log file of this size is set aside, and a new one begun.", ge=1)
    ] = 10 << 20
    log_files: Annotated[
        int, variable("UP_LOG_FILES", "Log files of a part that were set aside and are kept.", ge=0)
    ] = 2


def describe_settings() -> Iterator[SettingInfo]:
    return describe(UpSettings)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> UpSettings:
    """Raises InvalidUp."""
    return load(UpSettings, given, environment, whose="the supervisor", refuse=InvalidUp)
