"""Every setting of the health port, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slipstream.variables import SettingInfo, describe, load, variable


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where it answers, and how patient it is."""

    host: Annotated[str, variable("HEALTH_HOST", "Where it listens.")] = "127.0.0.1"
    port: Annotated[int, variable("HEALTH_PORT", "Its port; 0: there is none.", ge=0, le=65535)] = 0
    stall_ms: Annotated[
        int, variable("HEALTH_STALL_MS", "A loop that has not turned for so long is not alive.", ge=100)
    ] = 60_000
    trouble_ms: Annotated[
        int, variable("HEALTH_TROUBLE_MS", "Who has been without the bus for so long is not ready.", ge=0)
    ] = 10_000


def describe_settings() -> Iterator[SettingInfo]:
    return describe(HealthSettings)


def load_settings(
    given: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    refuse: Callable[[str], Exception] = ValueError,
) -> HealthSettings:
    """What is given by name, over what the environment says, over the defaults. Raises what `refuse` makes of it."""
    return load(HealthSettings, given, environment, whose="the health port", refuse=refuse)
