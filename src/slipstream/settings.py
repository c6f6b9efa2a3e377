"""Every setting of the server, once: its name, type, default and meaning.

The same name everywhere: `--max-in-flight` on the command line, `SLIPSTREAM_MAX_IN_FLIGHT` in the environment,
`max_in_flight` in a TOML file. The command line wins over the environment, the environment over the file, the file over
the profile, the profile over the defaults.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from slipstream.broker import BrokerConfig, RetryPolicy, TopicConfig
from slipstream.engine import EngineConfig
from slipstream.limits import Limits
from slipstream.store import Durability, StoreConfig

DAY_MS = 24 * 3600 * 1000


def _setting(section: str, text: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra={"section": section}, **limits)


def _serving(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("Serving", text, **limits)


def _storage(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("Storage", text, **limits)


def _delivery(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("Delivery", text, **limits)


def _pressure(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("Backpressure", text, **limits)


def _retention(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("Retention", text, **limits)


def _limit(text: str, **limits: Any) -> msgspec.Meta:
    return _setting("What a client may send", text, **limits)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Flat on purpose: a name is enough to find a setting."""

    host: Annotated[str, _serving("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _serving("Port to listen on; 0 picks a free one.", ge=0, le=65535)] = 8080
    data: Annotated[str, _serving("Data directory; created if missing.")] = "slipstream-data"
    profile: Annotated[
        Literal["default", "driftq-v1"],
        _serving("Set of defaults: 'default' for real work, 'driftq-v1' for the numbers of DriftQ v1."),
    ] = "default"
    router: Annotated[
        str, _serving("Router asked before a message is stored: module:name, an http(s) URL, or a .toml rules file.")
    ] = ""
    router_timeout_ms: Annotated[
        int, _serving("How long a router may take; after that the message goes its normal way.", ge=1)
    ] = 500
    console: Annotated[bool, _serving("Serve the console, the page for people, at /console/.")] = True
    console_url: Annotated[
        str,
        _serving(
            "Address of `slipstream console`, which is asked for what the page shows; else that is the broker alone."
        ),
    ] = ""
    console_timeout_ms: Annotated[
        int, _serving("How long `slipstream console` may take to begin its answer.", ge=1)
    ] = 90_000
    shutdown_timeout_ms: Annotated[int, _serving("How long a stop waits for what is under way.", ge=0)] = 10_000
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _serving("What is logged.")] = "info"
    log_format: Annotated[Literal["text", "json"], _serving("How it is logged.")] = "text"

    durability: Annotated[
        Durability,
        _storage("What an answer promises: 'always' on disk, 'interval' survives a crash of the process, 'off' soon."),
    ] = Durability.ALWAYS
    sync_interval_ms: Annotated[int, _storage("How often 'interval' syncs.", ge=1)] = 100
    journal_bytes: Annotated[int, _storage("A journal file is turned into segments at this size …", ge=4096)] = 64 << 20
    journal_changes: Annotated[int, _storage("… or with this many changes …", ge=1)] = 300_000
    journal_age_ms: Annotated[int, _storage("… or at this age …", ge=1)] = 3600 * 1000
    journal_idle_ms: Annotated[
        int, _storage("… or, a sixteenth full, when nothing has been stored for this long.", ge=1)
    ] = 2000
    compaction_backlog_max: Annotated[
        int, _storage("Closed journal files that may wait for compaction before producers have to.", ge=1)
    ] = 4
    journal_queue_bytes: Annotated[
        int, _storage("What may wait to be written to the journal before producers have to wait.", ge=1)
    ] = 64 << 20
    compaction_process: Annotated[
        bool, _storage("Compact in a process of its own, so that it does not slow down the broker.")
    ] = True
    verify_bytes: Annotated[
        int, _storage("Bytes of segments whose checksums are verified at every start, newest first.", ge=0)
    ] = 256 << 20
    disk_free_bytes: Annotated[
        int,
        _storage(
            "Free space that is kept for acks and compaction: with less, producers get 429. At most a tenth of the "
            "volume counts; 0 for none.",
            ge=0,
        ),
    ] = 256 << 20
    page_cache_pages: Annotated[int, _storage("Pages of older messages kept in memory (up to 1 MiB each).", ge=1)] = 64

    lease_ms: Annotated[int, _delivery("Lease of a consumer that does not ask for one.", ge=1)] = 2_000
    lease_ms_max: Annotated[int, _delivery("Longest lease a consumer may ask for.", ge=1)] = 12 * 3600 * 1000
    tick_ms: Annotated[int, _delivery("Resolution of lease and retry times.", ge=1)] = 10
    max_in_flight: Annotated[
        int, _delivery("Messages on lease per topic, group and partition; 0 for no limit.", ge=0)
    ] = 256
    stream_window_bytes: Annotated[
        int, _delivery("Bytes given to a stream at a time, before it is seen whether it keeps up.", ge=1)
    ] = 1 << 20
    pace_streams: Annotated[
        bool,
        _delivery(
            "Give a stream no more than it can settle in time, and park one that settles nothing; DriftQ does neither."
        ),
    ] = True
    max_delayed: Annotated[
        int,
        _delivery(
            "Messages per group and partition that are looked past because they are not due yet, and as many again "
            "that wait for another attempt; at the limit the group waits.",
            ge=0,
        ),
    ] = 100_000
    retry_backoff_ms: Annotated[
        int, _delivery("First pause before a retry, doubling, where a message has no policy of its own.", ge=0)
    ] = 100
    retry_max_backoff_ms: Annotated[int, _delivery("Longest such pause.", ge=0)] = 3_600_000
    retry_max_attempts: Annotated[
        int,
        _delivery("Attempts before a message is dead-lettered; 25 take almost ten hours. 0 for no limit.", ge=0),
    ] = 25
    idempotency_ttl_ms: Annotated[int, _delivery("How long an idempotency key is remembered.", ge=1)] = 600_000
    idempotency_keys_max: Annotated[int, _delivery("How many keys are remembered at most.", ge=1)] = 1_000_000

    staged_ttl_ms: Annotated[int, _delivery("How long staged messages wait for their commit.", ge=1)] = 3600 * 1000
    writer_ttl_ms: Annotated[
        int, _delivery("How long the sequence of a writer is remembered after its last commit.", ge=1)
    ] = 30 * DAY_MS

    max_waiting_messages: Annotated[
        int,
        _pressure(
            "Messages per partition the slowest group may have left before producers get 429; 0 for no limit.", ge=0
        ),
    ] = 1_000_000
    max_waiting_bytes: Annotated[int, _pressure("The same in key and value bytes.", ge=0)] = 1 << 30
    overload_retry_after_ms: Annotated[int, _pressure("What a 429 asks the producer to wait.", ge=1)] = 1_000
    group_absent_ms: Annotated[int, _pressure("A group unused for this long no longer holds back producers.", ge=1)] = (
        3600 * 1000
    )
    backpressure_without_groups: Annotated[
        bool, _pressure("Count messages as waiting while no group exists, as DriftQ does.")
    ] = False

    retention_ms: Annotated[int, _retention("How long messages are kept; 0 for ever.", ge=0)] = 7 * DAY_MS
    retention_bytes: Annotated[int, _retention("How many bytes per partition are kept; 0 for all.", ge=0)] = 0
    retention_hold_unfinished: Annotated[bool, _retention("Keep what a group has not finished, however old.")] = False
    topic_expiry_ms: Annotated[
        int,
        _retention("Delete a topic that was not used for this long and has nothing unfinished; 0 for never.", ge=0),
    ] = 0
    group_expiry_ms: Annotated[
        int, _retention("Forget a group that has never acked and was not used for this long; 0 for never.", ge=0)
    ] = 30 * DAY_MS
    retention_check_ms: Annotated[int, _retention("How often retention looks.", ge=1)] = 30_000

    max_body_bytes: Annotated[int, _limit("Request body.", ge=1)] = 1 << 20
    max_batch_bytes: Annotated[int, _limit("Body of a batch of messages (/v2/produce).", ge=1)] = 16 << 20
    max_batch_messages: Annotated[int, _limit("Messages in one request or answer of /v2.", ge=1)] = 10_000
    max_staged_bytes: Annotated[
        int, _limit("Bytes of messages that wait in memory for their commit; past that staging gets 429.", ge=1)
    ] = 256 << 20
    max_wait_ms: Annotated[int, _limit("Longest wait of a fetch or read of /v2.", ge=0)] = 60_000
    max_read_bytes: Annotated[int, _limit("Most that one read of the log may ask for.", ge=1)] = 64 << 20
    max_redrives: Annotated[int, _limit("Redrives of dead letters under way at a time.", ge=1)] = 16
    max_line_bytes: Annotated[int, _limit("Request line.", ge=1)] = 64 << 10
    max_header_bytes: Annotated[int, _limit("All headers of a request.", ge=1)] = 64 << 10
    max_headers: Annotated[int, _limit("Number of headers.", ge=1)] = 100
    receive_timeout_ms: Annotated[int, _limit("Time to send a request.", ge=1)] = 10_000
    idle_timeout_ms: Annotated[int, _limit("Time between requests on a connection.", ge=1)] = 75_000
    stall_timeout_ms: Annotated[int, _limit("Time a stream may go unread before it is dropped.", ge=1)] = 30_000
    max_connections: Annotated[int, _limit("Open connections.", ge=1)] = 10_000
    max_pipelined: Annotated[int, _limit("Requests under way on one connection.", ge=1)] = 128
    max_partitions: Annotated[int, _limit("Partitions of a topic.", ge=1)] = 1_024
    max_topics: Annotated[int, _limit("Topics.", ge=1)] = 10_000
    max_groups: Annotated[int, _limit("Groups.", ge=1)] = 10_000
    max_writers: Annotated[int, _limit("Writers whose sequence is remembered.", ge=1)] = 100_000

    def topic_config(self) -> TopicConfig:
        return TopicConfig(
            max_in_flight=self.max_in_flight,
            max_waiting_messages=self.max_waiting_messages,
            max_waiting_bytes=self.max_waiting_bytes,
            retry=RetryPolicy(self.retry_max_attempts, self.retry_backoff_ms, self.retry_max_backoff_ms),
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            hold_unfinished=self.retention_hold_unfinished,
            expiry_ms=self.topic_expiry_ms,
        )

    def broker_config(self) -> BrokerConfig:
        return BrokerConfig(
            topic=self.topic_config(),
            lease_ms=self.lease_ms,
            lease_ms_max=self.lease_ms_max,
            idempotency_ttl_ms=self.idempotency_ttl_ms,
            idempotency_keys_max=self.idempotency_keys_max,
            overload_retry_after_ms=self.overload_retry_after_ms,
            group_absent_ms=self.group_absent_ms,
            group_expiry_ms=self.group_expiry_ms,
            backpressure_without_groups=self.backpressure_without_groups,
            stream_window_bytes=self.stream_window_bytes,
            partitions_max=self.max_partitions,
            topics_max=self.max_topics,
            groups_max=self.max_groups,
            writers_max=self.max_writers,
            writer_ttl_ms=self.writer_ttl_ms,
            staged_bytes_max=self.max_staged_bytes,
            staged_ttl_ms=self.staged_ttl_ms,
            pace_streams=self.pace_streams,
            delayed_max=self.max_delayed,
        )

    def store_config(self) -> StoreConfig:
        return StoreConfig(
            durability=self.durability,
            sync_interval_ms=self.sync_interval_ms,
            journal_bytes=self.journal_bytes,
            journal_changes=self.journal_changes,
            journal_age_ms=self.journal_age_ms,
            journal_idle_ms=self.journal_idle_ms,
            compaction_backlog_max=self.compaction_backlog_max,
            journal_queue_bytes=self.journal_queue_bytes,
            compaction_process=self.compaction_process,
            verify_bytes=self.verify_bytes,
            disk_free_bytes=self.disk_free_bytes,
            page_cache_pages=self.page_cache_pages,
        )

    def limits(self) -> Limits:
        return Limits(
            body_bytes=self.max_body_bytes,
            line_bytes=self.max_line_bytes,
            header_bytes=self.max_header_bytes,
            headers=self.max_headers,
            receive_timeout_ms=self.receive_timeout_ms,
            idle_timeout_ms=self.idle_timeout_ms,
            stall_timeout_ms=self.stall_timeout_ms,
            connections=self.max_connections,
            pipelined=self.max_pipelined,
            batch_bytes=self.max_batch_bytes,
            batch_messages=self.max_batch_messages,
            wait_ms=self.max_wait_ms,
            read_bytes=self.max_read_bytes,
            redrives=self.max_redrives,
        )

    def engine_config(self) -> EngineConfig:
        return EngineConfig(tick_ms=self.tick_ms, retention_check_ms=self.retention_check_ms)


PROFILES: dict[str, dict[str, Any]] = {
    "default": {},
    # Ruling 10: DriftQ's numbers exactly; they are sized for demonstrations.
    "driftq-v1": {
        "max_in_flight": 2,
        "lease_ms": 2_000,
        "tick_ms": 250,
        "max_waiting_messages": 2,
        "max_waiting_bytes": 20,
        "retry_backoff_ms": 0,
        "retry_max_backoff_ms": 0,
        "retry_max_attempts": 0,
        "pace_streams": False,
        "idempotency_ttl_ms": 600_000,
        "backpressure_without_groups": True,
    },
}


class SettingError(ValueError):
    """A setting is wrong: which one, where it came from, and what would be right."""


class SettingInfo(msgspec.Struct, frozen=True):
    """A setting as the command line and the documentation show it."""

    name: str
    kind: type
    choices: tuple[str, ...]
    default: Any
    section: str
    text: str

    @property
    def environment(self) -> str:
        return f"SLIPSTREAM_{self.name.upper()}"

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


def describe_settings() -> Iterator[SettingInfo]:
    """Every setting, in the order of the sections."""
    return iter(_infos())


@functools.cache
def _infos() -> tuple[SettingInfo, ...]:
    found: list[SettingInfo] = []
    hints = get_type_hints(Settings, include_extras=True)
    defaults = Settings()
    for name in Settings.__struct_fields__:
        kind, meta = get_args(hints[name])
        choices: tuple[str, ...] = ()
        if get_origin(kind) is Literal:
            kind, choices = str, get_args(kind)
        elif kind is Durability:
            kind, choices = str, tuple(map(str, Durability))
        info = SettingInfo(name, kind, choices, getattr(defaults, name), meta.extra["section"], meta.description)
        found.append(info)
    return tuple(found)


def load_settings(
    given: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Settings:
    """Puts the sources together; `given` are the values from the command line."""
    from_file = _read_file(file) if file is not None else {}
    known = {info.environment: info.name for info in describe_settings()}
    from_environment = {known[name]: value for name, value in environment.items() if name in known}
    explicit: dict[str, Any] = {}
    for name, value in from_file.items():
        explicit[name] = _check(name, value, f"{name} in {file}")
    for name, value in from_environment.items():
        explicit[name] = _check(name, value, f"SLIPSTREAM_{name.upper()} in the environment")
    for name, value in given.items():
        explicit[name] = _check(name, value, f"--{name.replace('_', '-')} on the command line")
    profile = explicit.get("profile", "default")
    return msgspec.convert({**PROFILES[profile], **explicit}, Settings)


def unknown_variables(environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """A warning for each variable that looks like a setting and is none; SLIPSTREAM_URL is the client's.

    No error: it may be meant for another version, or for another program of the same family.
    """
    prefix = "SLIPSTREAM_"
    known = ["CONFIG", "URL", "PARTS", *(info.name.upper() for info in describe_settings())]
    for name in sorted(environment):
        if name.startswith(prefix) and name.removeprefix(prefix) not in known:
            closest = difflib.get_close_matches(name.removeprefix(prefix), known, 1)
            hint = f"; did you mean {prefix}{closest[0]}?" if closest else ""
            yield f"{name} in the environment is no setting and is ignored{hint}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise SettingError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: {error}") from error
    assert isinstance(values, dict), "a TOML document is a table"
    return values


def _check(name: str, value: object, what: str) -> object:
    """Each value on its own, so that the message can say `what` was wrong: the name as it was given, and where."""
    if name not in Settings.__struct_fields__:
        raise SettingError(f"{what}: there is no such setting (slipstream serve --help lists all of them)")
    try:
        checked = msgspec.convert({name: value}, Settings, strict=False)
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ")[0].split(", got ")[0]
        raise SettingError(f"{what}: {reason}, got {str(value)[:80]!r}") from error
    return getattr(checked, name)
