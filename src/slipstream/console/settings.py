"""Every setting of the console, once: its name in the environment, type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slipstream.variables import SettingInfo, describe, load, variable

MINUTE_MS = 60_000


class InvalidConsole(ValueError):
    """A setting makes no sense."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From when on something is a problem that a person should look at."""

    standing_ms: Annotated[
        int, variable("CONSOLE_STANDING_MS", "A group that has work and finishes nothing for so long stands.", ge=1)
    ] = MINUTE_MS
    standing_error_ms: Annotated[
        int, variable("CONSOLE_STANDING_ERROR_MS", "From then on it needs attention at once.", ge=1)
    ] = 3 * MINUTE_MS
    oldest_ms: Annotated[
        int, variable("CONSOLE_OLDEST_MS", "A message that has waited for longer has waited too long.", ge=1)
    ] = 5 * MINUTE_MS
    poison_attempts: Annotated[
        int,
        variable(
            "CONSOLE_POISON_ATTEMPTS", "A message that fails as often with the same error is a poison message.", ge=2
        ),
    ] = 3
    restarted_ms: Annotated[
        int, variable("CONSOLE_RESTARTED_MS", "That a part was restarted is told of for so long.", ge=1)
    ] = 5 * MINUTE_MS
    table_behind_ms: Annotated[
        int,
        variable(
            "CONSOLE_TABLE_BEHIND_MS",
            "A table that has left messages unread for so long, and was not written, is behind.",
            ge=1,
        ),
    ] = 5 * MINUTE_MS


class ConsoleSettings(Thresholds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where it listens, what it shows, and how patient it is."""

    host: Annotated[str, variable("CONSOLE_HOST", "Where it listens.")] = "127.0.0.1"
    port: Annotated[int, variable("CONSOLE_PORT", "Its port; 0 for any that is free.", ge=0, le=65535)] = 8070
    url: Annotated[str, variable("SLIPSTREAM_URL", "The server that is shown.")] = "http://127.0.0.1:8080"
    jobs_url: Annotated[str, variable("JOBS_URL", "The service of download jobs.")] = "http://127.0.0.1:8090"
    jobs_token: Annotated[str, variable("JOBS_TOKEN", "What that service asks for.", secret=True)] = ""
    parts: Annotated[
        str, variable("SLIPSTREAM_PARTS", "The file in which `slipstream up` says which parts run and how.")
    ] = ""
    state: Annotated[
        str,
        variable("CONSOLE_STATE", "The file that keeps which problems are acknowledged; empty: a restart forgets it."),
    ] = "slipstream-data/console.json"
    answer_timeout_ms: Annotated[
        int,
        variable(
            "CONSOLE_ANSWER_TIMEOUT_MS", "The broker or the service of jobs may take so long to begin its answer.", ge=1
        ),
    ] = 90_000
    sql_timeout_ms: Annotated[
        int, variable("CONSOLE_SQL_TIMEOUT_MS", "A question to the tables may take so long.", ge=1)
    ] = 20_000
    sql_rows: Annotated[int, variable("CONSOLE_SQL_ROWS", "Rows of an answer, at the most.", ge=1)] = 10_000
    sql_memory_bytes: Annotated[
        int,
        variable(
            "CONSOLE_SQL_MEMORY_BYTES", "Memory of a question, and half as much of the disk for what it sorts.", ge=1
        ),
    ] = 1 << 30
    sql_concurrency: Annotated[
        int, variable("CONSOLE_SQL_CONCURRENCY", "Questions to the tables at a time; others wait.", ge=1)
    ] = 2
    look_ms: Annotated[
        int, variable("CONSOLE_LOOK_MS", "How often slips, jobs and tables are looked at for problems.", ge=100)
    ] = 10_000


def describe_settings() -> Iterator[SettingInfo]:
    return describe(ConsoleSettings)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ConsoleSettings:
    """What is given by name, over what the environment says, over the defaults. An empty variable says nothing."""
    return load(ConsoleSettings, given, environment, whose="the console", refuse=InvalidConsole)
