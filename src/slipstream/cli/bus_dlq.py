"""`slipstream bus dlq`: the dead letters of a message bus, on every engine that keeps a log."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.bus import on_a_bus
from slipstream.cli.output import EXIT_CODES, Output, payload_text, text_or_base64
from slipstream.cli.values import PlaceName, PlaceOf, When, time_text
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.bus import BusSettings, DeadLetter, DeadLetters, Selection

REASON_CHARS = 80


@click.group()
def dlq() -> None:
    """Look at the dead letters of the bus, send them back, or discard them.

    Each lies in the topic <topic>.DLQ, with the reason. Where the bus is a Slipstream server, `slipstream dlq` is about
    the dead letters of the server's own consumers.
    """


def _selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("-g", "--group", default="", help="Died in this group."),
            click.option("-e", "--error", default="", help="Part of the reason."),
            click.option("--since", type=When(), help="Died then or later (2030-01-31T12:00Z, or 10m ago as 10m)."),
            click.option("--until", type=When(), help="Died before this time."),
        ]
    ):
        command = option(command)
    return command


@dlq.command("list", epilog=EXIT_CODES)
@click.argument("topic", default="")
@_selecting
@click.option("-n", "--max", "maximum", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@on_a_bus
def list_dead_letters(settings: BusSettings, output: Output, topic: str, maximum: int, **selection: Any) -> None:
    """List dead letters, of one topic or of all; the oldest first.

    \b
    [bold]Examples[/]
      slipstream bus dlq list
      slipstream bus dlq list orders --error timeout --since 1h
    """

    async def look(letters: DeadLetters) -> tuple[list[DeadLetter], bool]:
        found: list[DeadLetter] = []
        async for letter in letters.list(topic, _selection(**selection)):
            if len(found) == maximum:
                return found, True
            found.append(letter)
        await _check_topic(letters, topic, found)
        return found, False

    found, more = _asked(settings, look)
    if output.as_json:
        for letter in found:
            output.json(_plain(letter))
    elif not found:
        output.say("no dead letters")
    else:
        rows = [
            (each.place, time_text(each.died_ms), each.group, each.attempts, each.reason[:REASON_CHARS])
            for each in found
        ]
        output.table(["DEAD LETTER", "DIED", "GROUP", ">ATTEMPTS", "REASON"], rows)
        if more:
            output.note(f"[dim]there are more than {maximum}: see them with --max, or filter[/]")


@dlq.command(epilog=EXIT_CODES)
@click.argument("place", type=PlaceOf())
@on_a_bus
def show(settings: BusSettings, output: Output, place: PlaceName) -> None:
    """Show a dead letter whole. PLACE is topic/partition/offset, as `bus dlq list` shows it."""
    letter = _asked(settings, lambda letters: letters.get(place.topic, place.partition, place.offset))
    if output.as_json:
        output.json(_plain(letter))
        return
    rows: list[tuple[str, object]] = [
        ("dead letter", letter.place),
        ("from", letter.origin),
        ("group", letter.group),
        ("died", time_text(letter.died_ms)),
        ("attempts", letter.attempts),
        ("reason", letter.reason),
    ]
    rows += [(f"attribute {name}", value) for name, value in letter.attributes.items()]
    rows.append(("key", letter.key))
    output.table(["", ""], rows)
    output.out.print("\n" + escape(payload_text(letter.data)), soft_wrap=True)


@dlq.command(epilog=EXIT_CODES)
@click.argument("topic")
@_selecting
@click.option("-m", "--message", "places", multiple=True, type=PlaceOf(), help="Only this one; may be repeated.")
@click.option("--to", default="", help="Another topic, instead of the one each came from.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@on_a_bus
def redrive(
    settings: BusSettings,
    output: Output,
    topic: str,
    places: tuple[PlaceName, ...],
    to: str,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    **selection: Any,
) -> None:
    """Publish dead letters of a topic again, where they came from or elsewhere. All groups of the topic get them.

    What was sent back is no dead letter any more. Ctrl-C ends it; the same command sends the rest.

    \b
    [bold]Examples[/]
      slipstream bus dlq redrive orders --error timeout
      slipstream bus dlq redrive orders --message orders.DLQ/0/17 --to orders.retry
    """

    async def look(letters: DeadLetters) -> tuple[list[DeadLetter], list[str]]:
        found = await _chosen(letters, topic, places, limit, _selection(**selection))
        groups = await letters.bus.groups(to or found[0].origin) if found else []
        return found, groups or []

    found, groups = _asked(settings, look)
    if not dry_run and found and not yes:
        target = to or "where they came from"
        everybody = f", to all of {', '.join(groups)}" if len(groups) > 1 else ""
        question = f"Send {counted(len(found), 'dead letter')} of {topic} to {target}{everybody}?"
        click.confirm(question, abort=True, err=True)

    async def send(letters: DeadLetters) -> int:
        left = found if yes else await _still_there(letters, found)
        for letter in left:
            await letters.redrive(letter, to)
        return len(left)

    count = len(found) if dry_run else _asked(settings, send)
    _tell(output, count, "redriven", "would be sent back" if dry_run else "sent back", dry_run=dry_run)


@dlq.command(epilog=EXIT_CODES)
@click.argument("topic")
@_selecting
@click.option("-m", "--message", "places", multiple=True, type=PlaceOf(), help="Only this one; may be repeated.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@on_a_bus
def discard(
    settings: BusSettings,
    output: Output,
    topic: str,
    places: tuple[PlaceName, ...],
    limit: int | None,
    yes: bool,
    **selection: Any,
) -> None:
    """Give dead letters of a topic up for good.

    \b
    [bold]Examples[/]
      slipstream bus dlq discard orders --message orders.DLQ/0/17
    """
    found = _asked(settings, lambda letters: _chosen(letters, topic, places, limit, _selection(**selection)))
    if found and not yes:
        click.confirm(f"Discard {counted(len(found), 'dead letter')} of {topic} for good?", abort=True, err=True)

    async def give_up(letters: DeadLetters) -> int:
        left = found if yes else await _still_there(letters, found)
        for letter in left:
            await letters.discard(letter)
        return len(left)

    _tell(output, _asked(settings, give_up), "discarded", "discarded")


def _asked(settings: BusSettings, work: Callable[[DeadLetters], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with _opened(settings) as letters:
            return await work(letters)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _opened(settings: BusSettings) -> AsyncIterator[DeadLetters]:
    from slipstream.bus import open_bus  # noqa: PLC0415 - --help needs none of it

    async with open_bus(settings) as opened:
        yield opened.dead_letters


async def _chosen(
    letters: DeadLetters, topic: str, places: tuple[PlaceName, ...], limit: int | None, selection: Selection
) -> list[DeadLetter]:
    """Return the dead letters at the places, or all that are selected."""
    if places:
        found = [await letters.get(place.topic, place.partition, place.offset) for place in places]
        for letter in found:
            _check_of(topic, letter)
        return [letter for letter in found if selection.has(letter)][:limit]
    chosen: list[DeadLetter] = []
    async for letter in letters.list(topic, selection):
        if len(chosen) == limit:
            break
        chosen.append(letter)
    await _check_topic(letters, topic, chosen)
    return chosen


def _check_of(topic: str, letter: DeadLetter) -> None:
    from slipstream.bus import InvalidArgument  # noqa: PLC0415
    from slipstream.bus.names import DEAD_LETTER_SUFFIX  # noqa: PLC0415

    if topic not in {letter.origin, letter.topic, letter.topic.removesuffix(DEAD_LETTER_SUFFIX)}:
        raise InvalidArgument(f"{letter.place} is a dead letter of {letter.origin}, and not of {topic}: name its topic")


async def _check_topic(letters: DeadLetters, topic: str, found: list[DeadLetter]) -> None:
    """Raise TopicMissing if nothing was found because there is no topic of this name."""
    from slipstream.bus import TopicMissing  # noqa: PLC0415
    from slipstream.bus.names import DEAD_LETTER_SUFFIX  # noqa: PLC0415

    if found or not topic:
        return
    for name in (topic, topic.removesuffix(DEAD_LETTER_SUFFIX), topic + DEAD_LETTER_SUFFIX):
        if await letters.bus.topic(name) is not None:
            return
    raise TopicMissing(
        f"there is no topic {topic}: correct its name; slipstream bus dlq list shows those of all topics"
    )


async def _still_there(letters: DeadLetters, found: list[DeadLetter]) -> list[DeadLetter]:
    """Return those that are still dead letters: others may have handled some while a question was open."""
    topics = {letter.topic for letter in found}
    there = {(letter.place, letter.died_ms) for topic in topics async for letter in letters.list(topic)}
    return [letter for letter in found if (letter.place, letter.died_ms) in there]


def _selection(
    *, group: str = "", error: str = "", since: dt.datetime | None = None, until: dt.datetime | None = None
) -> Selection:
    from slipstream.bus import Selection  # noqa: PLC0415

    return Selection(group=group, error=error, since_ms=_ms(since), until_ms=_ms(until))


def _ms(time: dt.datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def _tell(output: Output, count: int, name: str, verb: str, **more: bool) -> None:
    if output.as_json:
        output.json({name: count, **more})
    else:
        output.say(f"{counted(count, 'dead letter')} {verb}")


def _plain(letter: DeadLetter) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(letter, data=b""))
    fields["data"], encoding = text_or_base64(letter.data)
    return {**fields, "encoding": encoding} if encoding else fields
