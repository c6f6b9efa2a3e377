"""Every setting of the bus, once: its name in the environment, type, default and meaning.

The names are those of the platform this bus was designed for, so that what is deployed with them works unchanged. The
embedded broker takes the `SLIPSTREAM_*` settings of `slipstream serve` besides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from slipstream.bus.errors import InvalidArgument
from slipstream.bus.names import check_prefix

DriverName = Literal["embedded", "memory", "http", "nats", "pubsub"]

DAY_MS = 24 * 3600 * 1000


def _variable(name: str, text: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra={"variable": name}, **limits)


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engine, how to reach it, and how patient to be with it."""

    driver: Annotated[DriverName, _variable("MESSAGE_BUS_DRIVER", "The engine.")] = "embedded"
    prefix: Annotated[str, _variable("BUS_PREFIX", "Put before every topic, such as `dev.`")] = ""
    ensure: Annotated[
        bool, _variable("BUS_ENSURE", "Make topics, streams and subscriptions that are missing; false: refuse.")
    ] = True
    partitions: Annotated[
        int, _variable("BUS_PARTITIONS", "Of topics that are made, where the engine has partitions.", ge=1)
    ] = 1
    retention_ms: Annotated[
        int, _variable("BUS_RETENTION_MS", "How long topics that are made keep messages; 0 for ever.", ge=0)
    ] = 7 * DAY_MS
    max_unfinished: Annotated[
        int,
        _variable("BUS_MAX_UNFINISHED", "Of a group on a topic that is made, retries that wait included.", ge=1),
    ] = 20_000
    connect_timeout_ms: Annotated[
        int, _variable("BUS_CONNECT_TIMEOUT_MS", "How long the engine is tried when the bus is opened.", ge=1)
    ] = 10_000
    publish_timeout_ms: Annotated[
        int,
        _variable("BUS_PUBLISH_TIMEOUT_MS", "How long a publish is tried, while the engine is away, say.", ge=1),
    ] = 60_000
    drain_timeout_ms: Annotated[
        int, _variable("BUS_DRAIN_TIMEOUT_MS", "How long `close` waits for handlers before it cancels them.", ge=0)
    ] = 30_000
    max_buffered_messages: Annotated[
        int, _variable("BUS_MAX_BUFFERED_MESSAGES", "Under way to the engine; `publish` waits above that.", ge=1)
    ] = 10_000
    lag_interval_ms: Annotated[
        int, _variable("BUS_LAG_INTERVAL_MS", "How often consumer_lag is asked of the engine; 0 for never.", ge=0)
    ] = 5_000

    data: Annotated[
        str, _variable("SLIPSTREAM_DATA", "Directory of the embedded broker; `:memory:` keeps nothing.")
    ] = "slipstream-data"
    url: Annotated[str, _variable("SLIPSTREAM_URL", "The server of the http driver.")] = "http://127.0.0.1:8080"

    nats_url: Annotated[str, _variable("NATS_URL", "One server, or several with commas between them.")] = (
        "nats://127.0.0.1:4222"
    )
    nats_creds_path: Annotated[str, _variable("NATS_CREDS_PATH", "Credentials file.")] = ""
    nats_nkey_seed: Annotated[str, _variable("NATS_NKEY_SEED", "NKey seed, in place of a credentials file.")] = ""
    nats_jetstream: Annotated[
        bool,
        _variable("NATS_JETSTREAM", "false: core NATS, at most once. What nobody listens to, or dies with, is lost."),
    ] = True
    nats_replicas: Annotated[
        int, _variable("NATS_REPLICAS", "Copies of the streams that are made, in a cluster.", ge=1, le=5)
    ] = 1

    pubsub_project: Annotated[
        str, _variable("GOOGLE_CLOUD_PROJECT", "Project; by default that of the credentials, `local` on an emulator.")
    ] = ""
    pubsub_emulator_host: Annotated[
        str, _variable("PUBSUB_EMULATOR_HOST", "host:port of an emulator, which asks for no credentials.")
    ] = ""
    pubsub_batch_messages: Annotated[
        int, _variable("PUBSUB_BATCH_MESSAGES", "A batch is sent with so many messages …", ge=1, le=1_000)
    ] = 100
    pubsub_batch_bytes: Annotated[int, _variable("PUBSUB_BATCH_BYTES", "… or so many bytes …", ge=1, le=10_000_000)] = (
        1_000_000
    )
    pubsub_batch_latency_ms: Annotated[
        int, _variable("PUBSUB_BATCH_LATENCY_MS", "… or so long after its first message.", ge=0)
    ] = 5


class SettingInfo(msgspec.Struct, frozen=True):
    """A setting as the documentation shows it."""

    name: str
    variable: str
    default: Any
    text: str


def describe_settings() -> Iterator[SettingInfo]:
    hints = get_type_hints(BusSettings, include_extras=True)
    defaults = BusSettings()
    for name in BusSettings.__struct_fields__:
        _, meta = get_args(hints[name])
        yield SettingInfo(name, meta.extra["variable"], getattr(defaults, name), meta.description)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> BusSettings:
    """What is given by name, over what the environment says, over the defaults. An empty variable says nothing."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for info in describe_settings():
        if text := environment.get(info.variable, "").strip():
            values[info.name] = _check(info.name, _word(info, text), f"{info.variable}={text!r:.80}")
    for name, value in given.items():
        if name not in BusSettings.__struct_fields__:
            names = ", ".join(BusSettings.__struct_fields__)
            raise InvalidArgument(f"the bus has no setting {name!r}; there are {names}")
        values[name] = _check(name, value, f"{name}={value!r:.80}")
    settings = BusSettings(**values)
    check_prefix(settings.prefix)
    if settings.nats_creds_path and settings.nats_nkey_seed:
        raise InvalidArgument("NATS_CREDS_PATH and NATS_NKEY_SEED are both set: a connection takes one of them")
    return settings


def _word(info: SettingInfo, text: str) -> object:
    """`1`, `yes` and `on` are usual in environments, too."""
    if not isinstance(info.default, bool):
        return text
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return words.get(text.lower(), text)


def _check(name: str, value: object, what: str) -> object:
    """Each on its own, so that the message can say what was wrong, and where it came from."""
    try:
        return getattr(msgspec.convert({name: value}, BusSettings, strict=False), name)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        if name != "driver" and isinstance(value, str) and "Expected `" in reason:
            reason = {"bool": "true or false is wanted", "int": "a number is wanted"}.get(
                reason.removeprefix("Expected `").partition("`")[0], reason
            )
        if name == "driver":
            reason = "there is embedded, memory, http, nats and pubsub"
        secret = name == "nats_nkey_seed"
        raise InvalidArgument(f"{'NATS_NKEY_SEED' if secret else what}: {reason}") from error
