"""`slipstream bus`: listen in on a message bus, and see whether it is well, whatever engine is behind it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.output import (
    EXIT_CODES,
    INTERRUPTED,
    NOT_FOUND,
    UNREACHABLE,
    Output,
    answering,
    payload_text,
    text_or_base64,
)
from slipstream.cli.values import size_text

if TYPE_CHECKING:
    from slipstream.bus import Bus, BusSettings, Finding, Stored

DRIVERS = ["embedded", "memory", "http", "nats", "pubsub"]
INSIDE = {"embedded", "memory"}
"""Those whose broker is inside the process that uses it."""

DATA_CHARS = 200
"""Of a message in a line for people; --json has all of it."""

SHOWN_ELSEWHERE = {"correlationId", "traceparent"}
"""The first has a place of its own in the line; the second is noise to people, and in --json."""

NOTHING_IN_MEMORY = (
    "the memory driver keeps everything inside the process that uses it: there is nothing to see from here"
)
NOTHING_TO_TAP = (
    "the embedded broker lives inside the application, so there is nothing to listen to from here: serve its directory "
    "with `slipstream serve --data {data}` and give the application and this command MESSAGE_BUS_DRIVER=http"
)


@click.group()
def bus() -> None:
    """Look at a message bus: what passes on it, and whether it is well.

    The environment names it, as for the application: MESSAGE_BUS_DRIVER, BUS_PREFIX and what the driver needs, such as
    SLIPSTREAM_URL or NATS_URL. If it names no driver, the bus is the server that runs here, or the embedded broker.
    """


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def on_a_bus(command: CommandT) -> CommandT:
    """Gives a command `--driver`, `--prefix` and `--json`, the settings and an output, and an exit code for what went
    wrong."""

    @click.option("--driver", type=click.Choice(DRIVERS), help="The engine; also MESSAGE_BUS_DRIVER.")
    @click.option("--prefix", help="What every topic of the bus starts with, such as dev.; also BUS_PREFIX.")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, driver: str | None, prefix: str | None, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, _exit_code) as output:
            from slipstream.bus import load_settings  # noqa: PLC0415 - --help needs none of it

            given = {"driver": driver, "prefix": prefix}
            settings = load_settings({name: value for name, value in given.items() if value is not None})
            command(settings, output, *args, **kwargs)

    return run  # type: ignore[return-value]


def _exit_code(error: Exception) -> int | None:
    from slipstream import bus  # noqa: PLC0415

    codes: list[tuple[type[Exception], int]] = [
        (bus.InvalidArgument, 2),
        (bus.TopicMissing, NOT_FOUND),
        (bus.DeadLetterMissing, NOT_FOUND),
        (bus.BusUnavailable, UNREACHABLE),
        (bus.BusError, 1),
        (OSError, 1),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), None)


# Listening in


@bus.command(epilog=EXIT_CODES)
@click.argument("pattern", default="*")
@click.option("-n", "--limit", type=click.IntRange(1), help="Stop after so many messages.")
@on_a_bus
def tap(settings: BusSettings, output: Output, pattern: str, limit: int | None) -> None:
    """Print what passes from now on, without consuming it from anyone.

    PATTERN says of which topics; * stands for anything, dots too. Of one dead-letter topic, such as orders.DLQ, what
    lies there already comes first; `slipstream bus dlq` sends it back. A line has time, topic, size, key,
    correlationId, data and the other attributes. What is listened to is said on stderr, when it is.

    \b
    [bold]Examples[/]
      slipstream bus tap 'internal.*'
      slipstream bus tap --json | grep 4bf92f3577b34da6
    """
    if settings.driver in INSIDE:
        from slipstream.bus import Unsupported  # noqa: PLC0415

        in_memory = settings.driver == "memory" or settings.data.startswith(":memory:")
        raise Unsupported(NOTHING_IN_MEMORY if in_memory else NOTHING_TO_TAP.format(data=settings.data))
    try:
        asyncio.run(_tap(settings, output, pattern, limit))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def _tap(settings: BusSettings, output: Output, pattern: str, limit: int | None) -> None:
    from slipstream.bus import open_bus  # noqa: PLC0415

    listening = asyncio.Event()

    async def announce() -> None:
        await listening.wait()
        output.note(f"[dim]listening to {escape(settings.prefix + pattern)} on {escape(_place(settings))}[/]")

    seen = 0
    async with open_bus(settings) as opened:
        announcement = asyncio.create_task(announce())
        try:
            async with contextlib.aclosing(_passing(opened, pattern, listening)) as passing:
                async for stored in passing:
                    _show(output, stored)
                    seen += 1
                    if seen == limit:
                        return
        finally:
            announcement.cancel()


async def _passing(bus: Bus, pattern: str, listening: asyncio.Event) -> AsyncGenerator[Stored, None]:
    """Yield what is published. One dead-letter topic is followed from its beginning, where there is a log."""
    if is_one_dead_letter_topic(pattern) and await _is_one_log(bus, pattern):
        async with contextlib.aclosing(bus.follow(pattern)) as batches:
            listening.set()
            async for batch in batches:
                for stored in batch:
                    yield stored
    async with contextlib.aclosing(bus.tap(pattern, listening=listening)) as passing:
        async for stored in passing:
            yield stored


async def _is_one_log(bus: Bus, topic: str) -> bool:
    """Return whether a topic exists, has one partition, and can be read."""
    from slipstream.bus import Unsupported  # noqa: PLC0415

    info = await bus.topic(topic)
    if info is None or info.partitions != 1:
        return False
    try:
        async with contextlib.aclosing(bus.read(topic, end=0)) as nothing:
            async for _ in nothing:
                pass
    except Unsupported:
        return False
    return True


def is_one_dead_letter_topic(pattern: str) -> bool:
    from slipstream.bus.names import DEAD_LETTER_SUFFIX  # noqa: PLC0415

    return pattern.endswith(DEAD_LETTER_SUFFIX) and not any(sign in pattern for sign in "*?[")


def _place(settings: BusSettings) -> str:
    """Without the names and passwords that addresses may carry."""
    place = {
        "http": settings.url,
        "nats": settings.nats_url,
        "pubsub": settings.pubsub_emulator_host or settings.pubsub_project or "the project of the credentials",
    }[settings.driver]
    shown = re.sub(r"(^|,|//)[^/@,]*@", r"\1", place)
    return f"{shown} ({settings.driver})"


def _show(output: Output, stored: Stored) -> None:
    if output.as_json:
        output.json(_plain(stored))
        return
    time = dt.datetime.fromtimestamp(stored.published_ms / 1000).astimezone()
    data = payload_text(stored.data)
    if len(data) > DATA_CHARS:
        data = data[:DATA_CHARS] + "…"
    others = [f"{name}={value}" for name, value in stored.attributes.items() if name not in SHOWN_ELSEWHERE]
    parts = [
        f"[dim]{time:%H:%M:%S}.{stored.published_ms % 1000:03}[/]",
        f"[bold]{escape(stored.topic)}[/]",
        size_text(len(stored.data)),
        f"[cyan]{escape(_line(stored.key))}[/]" if stored.key else "[dim]-[/]",
        escape(_line(stored.attributes.get("correlationId", "-"))),
        escape(data),
        f"[dim]{escape(_line(' '.join(others)))}[/]" if others else "",
    ]
    output.out.print(" ".join(part for part in parts if part), soft_wrap=True)


def _line(text: str) -> str:
    """On one line, whatever somebody put into it."""
    return payload_text(text.encode(errors="replace"))


def _plain(stored: Stored) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(stored)
    fields["data"], encoding = text_or_base64(stored.data)
    if stored.offset < 0:
        del fields["partition"], fields["offset"]
    return {**fields, "encoding": encoding} if encoding else fields


# The doctor


@bus.command(epilog=EXIT_CODES)
@on_a_bus
def doctor(settings: BusSettings, output: Output) -> None:
    """Say whether the engine can be reached, with what, and what is there.

    Exits with 0 if there is no problem (a warning is none), 5 if the engine cannot be reached, 1 for other problems.

    \b
    [bold]Examples[/]
      slipstream bus doctor
      MESSAGE_BUS_DRIVER=nats NATS_URL=nats://10.0.0.7:4222 slipstream bus doctor --json
    """
    findings = asyncio.run(_examine(settings, output))
    verdicts = [finding.verdict for finding in findings]
    warnings, problems = verdicts.count("warning"), verdicts.count("problem")
    if output.as_json:
        verdict = "problem" if problems else "warning" if warnings else "ok"
        output.json({"driver": settings.driver, "verdict": verdict, "findings": findings})
    elif problems:
        output.say(f"[bold red]{_count(problems, 'problem')}[/] on {settings.driver}")
    elif warnings:
        output.say(f"[yellow]{settings.driver} works, with {_count(warnings, 'warning')}[/]")
    else:
        output.say(f"[green]{settings.driver} is well[/]")
    if any(finding.verdict == "problem" and finding.what == "connection" for finding in findings):
        sys.exit(UNREACHABLE)
    sys.exit(1 if problems else 0)


async def _examine(settings: BusSettings, output: Output) -> list[Finding]:
    """Each is said as it is found: to find that nobody answers takes a while."""
    from slipstream.bus import examine  # noqa: PLC0415

    colours = {"ok": "green", "warning": "yellow", "problem": "bold red"}
    findings = []
    async for finding in _with_engine(settings, _is_engine_named(), examine(settings)):
        findings.append(finding)
        mark = f"[{colours[finding.verdict]}]{finding.verdict:7}[/]"
        if not output.as_json:
            output.out.print(f"{mark} {escape(_line(finding.what))}: {escape(_line(finding.text))}", soft_wrap=True)
    return findings


def _is_engine_named() -> bool:
    context = click.get_current_context(silent=True)
    given = context.params.get("driver") if context is not None else None
    return bool(given) or os.environ.get("MESSAGE_BUS_DRIVER", "").strip() not in {"", "auto"}


async def _with_engine(settings: BusSettings, is_named: bool, found: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Say first which engine it is, if nothing names one."""
    from slipstream.bus import Finding  # noqa: PLC0415

    if not is_named:
        why = "no server runs here" if settings.driver == "embedded" else f"a server runs at {settings.url}"
        why = f"MESSAGE_BUS_DRIVER is not set and {why}"
        if os.environ.get("SLIPSTREAM_URL", "").strip():
            why = "SLIPSTREAM_URL is set"
        yield Finding("ok", "engine", f"{settings.driver}, because {why}")
    async for finding in found:
        yield finding


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
