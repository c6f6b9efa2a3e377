"""Every setting of the bus, once: its name in the environment, type, default and meaning.

The names are those of the platform this bus was designed for, so that what is deployed with them works unchanged. The
embedded broker takes the `SLIPSTREAM_*` settings of `slipstream serve` besides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from slipstream.bus.errors import InvalidArgument
from slipstream.bus.names import check_prefix
from slipstream.variables import SettingInfo, describe, load, variable

DriverName = Literal["auto", "embedded", "memory", "http", "nats", "pubsub"]

DAY_MS = 24 * 3600 * 1000


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engine, how to reach it, and how patient to be with it."""

    driver: Annotated[
        DriverName,
        variable(
            "MESSAGE_BUS_DRIVER",
            "The engine; `auto`: [the server that runs here](bus.md#which-engine), or else `embedded`.",
        ),
    ] = "auto"
    prefix: Annotated[str, variable("BUS_PREFIX", "Put before every topic, such as `dev.`")] = ""
    ensure: Annotated[
        bool, variable("BUS_ENSURE", "Make topics, streams and subscriptions that are missing; false: refuse.")
    ] = True
    partitions: Annotated[
        int, variable("BUS_PARTITIONS", "Of topics that are made, where the engine has partitions.", ge=1)
    ] = 1
    retention_ms: Annotated[
        int, variable("BUS_RETENTION_MS", "How long topics that are made keep messages; 0 for ever.", ge=0)
    ] = 7 * DAY_MS
    max_unfinished: Annotated[
        int,
        variable("BUS_MAX_UNFINISHED", "Of a group on a topic that is made, retries that wait included.", ge=1),
    ] = 20_000
    connect_timeout_ms: Annotated[
        int, variable("BUS_CONNECT_TIMEOUT_MS", "How long the engine is tried when the bus is opened.", ge=1)
    ] = 10_000
    publish_timeout_ms: Annotated[
        int,
        variable("BUS_PUBLISH_TIMEOUT_MS", "How long a publish is tried, while the engine is away, say.", ge=1),
    ] = 60_000
    drain_timeout_ms: Annotated[
        int, variable("BUS_DRAIN_TIMEOUT_MS", "How long `close` waits for handlers before it cancels them.", ge=0)
    ] = 30_000
    max_buffered_messages: Annotated[
        int, variable("BUS_MAX_BUFFERED_MESSAGES", "Under way to the engine; `publish` waits above that.", ge=1)
    ] = 10_000
    lag_interval_ms: Annotated[
        int, variable("BUS_LAG_INTERVAL_MS", "How often consumer_lag is asked of the engine; 0 for never.", ge=0)
    ] = 5_000

    data: Annotated[str, variable("SLIPSTREAM_DATA", "Directory of the embedded broker; `:memory:` keeps nothing.")] = (
        "slipstream-data"
    )
    url: Annotated[str, variable("SLIPSTREAM_URL", "The server of the http driver.")] = "http://127.0.0.1:8080"

    nats_url: Annotated[str, variable("NATS_URL", "One server, or several with commas between them.")] = (
        "nats://127.0.0.1:4222"
    )
    nats_creds_path: Annotated[str, variable("NATS_CREDS_PATH", "Credentials file.")] = ""
    nats_nkey_seed: Annotated[
        str, variable("NATS_NKEY_SEED", "NKey seed, in place of a credentials file.", secret=True)
    ] = ""
    nats_ca: Annotated[
        str, variable("NATS_CA", "File with the certificates that the server's is checked by; by default the system's.")
    ] = ""
    nats_cert: Annotated[str, variable("NATS_CERT", "File with our certificate, where the server asks for one.")] = ""
    nats_key: Annotated[str, variable("NATS_KEY", "File with the private key of NATS_CERT.")] = ""
    nats_jetstream: Annotated[
        bool,
        variable("NATS_JETSTREAM", "false: core NATS, at most once. What nobody listens to, or dies with, is lost."),
    ] = True
    nats_replicas: Annotated[
        int, variable("NATS_REPLICAS", "Copies of the streams that are made, in a cluster.", ge=1, le=5)
    ] = 1

    pubsub_project: Annotated[
        str, variable("GOOGLE_CLOUD_PROJECT", "Project; by default that of the credentials, `local` on an emulator.")
    ] = ""
    pubsub_emulator_host: Annotated[
        str, variable("PUBSUB_EMULATOR_HOST", "host:port of an emulator, which asks for no credentials.")
    ] = ""
    pubsub_batch_messages: Annotated[
        int, variable("PUBSUB_BATCH_MESSAGES", "A batch is sent with so many messages …", ge=1, le=1_000)
    ] = 100
    pubsub_batch_bytes: Annotated[int, variable("PUBSUB_BATCH_BYTES", "… or so many bytes …", ge=1, le=10_000_000)] = (
        1_000_000
    )
    pubsub_batch_latency_ms: Annotated[
        int, variable("PUBSUB_BATCH_LATENCY_MS", "… or so long after its first message.", ge=0)
    ] = 5


def describe_settings() -> Iterator[SettingInfo]:
    return describe(BusSettings)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> BusSettings:
    """Return what is given by name, over what the environment says, over the defaults. An empty variable says nothing.

    The driver of the result is never `auto`: the server that runs here is looked for."""
    environment = os.environ if environment is None else environment
    settings = load(
        BusSettings,
        given,
        environment,
        whose="the bus",
        refuse=InvalidArgument,
        reasons={"driver": "there is auto, embedded, memory, http, nats and pubsub"},
    )
    check_prefix(settings.prefix)
    if settings.nats_creds_path and settings.nats_nkey_seed:
        raise InvalidArgument("NATS_CREDS_PATH and NATS_NKEY_SEED are both set: a connection takes one of them")
    if bool(settings.nats_cert) != bool(settings.nats_key):
        raise InvalidArgument("NATS_CERT and NATS_KEY are a pair: set both, or neither")
    if settings.driver != "auto":
        return settings
    from slipstream.bus.discovery import resolved  # noqa: PLC0415 - it loads the store, which others do without

    set_there = {info.name for info in describe_settings() if environment.get(info.variable, "").strip()}
    return resolved(settings, set_there | set(given))
