"""Every setting of routing slips, once: its name in the environment, type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slipstream.bus import Backoff, SubscribeOptions
from slipstream.slip.errors import InvalidSlip
from slipstream.variables import SettingInfo, describe, load, variable

HOUR_MS = 3600 * 1000


class SlipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How patient routers and workers are, how much they do at a time, and what is kept for how long."""

    store: Annotated[
        str,
        variable(
            "SLIP_STORE",
            "What router and workers share: a file, `redis://…` for more than one machine, or `:memory:`.",
            secret=True,
        ),
    ] = "slipstream-data/slips.db"
    routes: Annotated[str, variable("SLIP_ROUTES", "The route table: a .yaml or .toml file.")] = ""
    decentralised: Annotated[
        bool, variable("SLIP_DECENTRALISED", "Workers send a message straight to its next step, where they can.")
    ] = False
    max_in_flight: Annotated[
        int, variable("SLIP_MAX_IN_FLIGHT", "Messages in the hands of a step of a worker, unless it says itself.", ge=1)
    ] = 64
    router_max_in_flight: Annotated[
        int,
        variable(
            "SLIP_ROUTER_MAX_IN_FLIGHT",
            "Messages in the hands of a router: more than in those of a step, as all steps come back to it.",
            ge=1,
        ),
    ] = 256
    ack_deadline_ms: Annotated[
        int,
        variable("SLIP_ACK_DEADLINE_MS", "After the death of a router or worker another has its messages then.", ge=10),
    ] = 30_000
    max_attempts: Annotated[int, variable("SLIP_MAX_ATTEMPTS", "At a step, where the slip does not say.", ge=1)] = 3
    max_deaths: Annotated[
        int,
        variable("SLIP_MAX_DEATHS", "Workers that may die of a message before its step has failed for good.", ge=1),
    ] = 5
    retry_base_ms: Annotated[
        int,
        variable("SLIP_RETRY_BASE_MS", "Pause before the first retry; doubling, and a random part of it on top.", ge=0),
    ] = 500
    retry_longest_ms: Annotated[int, variable("SLIP_RETRY_LONGEST_MS", "Longest such pause.", ge=0)] = 60_000
    ttl_ms: Annotated[
        int,
        variable("SLIP_TTL_MS", "How long outcomes, payloads and history are kept after the last of them.", ge=1),
    ] = 24 * HOUR_MS
    poll_ms: Annotated[
        int,
        variable("SLIP_POLL_MS", "How often time-outs, decisions, pauses and the route table are looked at.", ge=1),
    ] = 500
    stuck_after_ms: Annotated[
        int, variable("SLIP_STUCK_AFTER_MS", "A message that has not moved for so long is stuck.", ge=1)
    ] = 5 * 60_000
    artefact: Annotated[
        str, variable("SLIP_ARTEFACT", "The field of the payload that is delivered when the message is complete.")
    ] = "reply"
    chunks_max: Annotated[int, variable("SLIP_CHUNKS_MAX", "Chunks of one message that are put together.", ge=1)] = (
        10_000
    )


def describe_settings() -> Iterator[SettingInfo]:
    return describe(SlipSettings)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> SlipSettings:
    """What is given by name, over what the environment says, over the defaults. An empty variable says nothing."""
    return load(SlipSettings, given, environment, whose="a slip", refuse=InvalidSlip)


def subscribe_options(settings: SlipSettings, max_in_flight: int) -> SubscribeOptions:
    """Without a limit of deliveries: what cannot be done is a dead letter of the slip, and what comes again does so
    because somebody died, or bus or store were away, and is tried until it works."""
    return SubscribeOptions(
        max_in_flight=max_in_flight,
        ack_deadline=settings.ack_deadline_ms / 1000,
        backoff=Backoff(settings.retry_base_ms / 1000, settings.retry_longest_ms / 1000),
        max_deliver=0,
    )
