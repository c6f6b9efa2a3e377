"""`slipstream message`: help single messages of a group, whichever worker holds them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from slipstream.cli.attempts import show_history
from slipstream.cli.output import EXIT_CODES, NOT_ALL_DONE, Output, speaks
from slipstream.cli.values import Duration, PlaceName, PlaceOf, time_text
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.api import Failure, OperationResponse, Place
    from slipstream.client import Client


@click.group()
def message() -> None:
    """Help single messages of a group: retry, reject, discard, extend, release."""


_group = click.option("-g", "--group", required=True, help="The group whose messages these are.")
_places = click.argument("places", metavar="PLACE...", nargs=-1, required=True, type=PlaceOf())
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@message.command(epilog=EXIT_CODES)
@click.argument("place", type=PlaceOf())
@_group
@speaks
def show(client: Client, output: Output, place: PlaceName, group: str) -> None:
    """Show where a message stands in a group, and its failed attempts. PLACE is topic/partition/offset."""
    found = client.message_state(place.topic, group, place.partition, place.offset)
    if output.as_json:
        output.json(found)
        return
    rows: list[tuple[str, object]] = [
        ("message", f"{found.topic}/{found.partition}/{found.offset}"),
        ("group", found.group),
        ("state", found.state),
        ("attempts", found.attempts),
    ]
    if found.owner:
        rows.append(("worker", found.owner))
    if found.until_ms is not None and found.state != "ready":
        rows.append(("lease ends" if found.state == "leased" else "due", time_text(found.until_ms)))
    output.table(["", ""], rows)
    show_history(output, found.history)


@message.command(epilog=EXIT_CODES)
@_places
@_group
@speaks
def retry(client: Client, output: Output, places: tuple[PlaceName, ...], group: str) -> None:
    """Retry messages now that wait for their next attempt, and deliver delayed ones.

    \b
    [bold]Example[/]
      slipstream message retry orders/0/17 --group billing
    """
    _operate(output, places, "retried", lambda topic, each: client.retry_now(topic, group, each))


@message.command(epilog=EXIT_CODES)
@_places
@_group
@click.option("-r", "--reason", default="", help="Shown with the dead letter.")
@_yes
@speaks
def reject(client: Client, output: Output, places: tuple[PlaceName, ...], group: str, reason: str, yes: bool) -> None:
    """Move messages to the dead letters of their topic. `dlq redrive` sends them back.

    \b
    [bold]Example[/]
      slipstream message reject orders/0/17 --group billing --reason "no such customer"
    """
    _confirm(f"Move {counted(len(places), 'message')} of group {group} to the dead letters?", yes)
    _operate(output, places, "rejected", lambda topic, each: client.reject_messages(topic, group, each, reason=reason))


@message.command(epilog=EXIT_CODES)
@_places
@_group
@_yes
@speaks
def discard(client: Client, output: Output, places: tuple[PlaceName, ...], group: str, yes: bool) -> None:
    """Finish messages for a group without handling them. They leave no dead letter."""
    _confirm(f"Discard {counted(len(places), 'message')} of group {group}, without a dead letter?", yes)
    _operate(output, places, "discarded", lambda topic, each: client.discard_messages(topic, group, each))


@message.command(epilog=EXIT_CODES)
@_places
@_group
@click.option("--lease", type=Duration(), default=60_000, help="How much time the worker gets, from now (60s).")
@speaks
def extend(client: Client, output: Output, places: tuple[PlaceName, ...], group: str, lease: int) -> None:
    """Extend the leases of messages for the workers that hold them."""
    _operate(output, places, "extended", lambda topic, each: client.extend_messages(topic, group, each, lease_ms=lease))


@message.command(epilog=EXIT_CODES)
@click.argument("places", metavar="[PLACE...]", nargs=-1, type=PlaceOf())
@click.option("-g", "--group", help="The group whose messages these are.")
@click.option("--owner", help="All leases of this worker, instead of single messages.")
@click.option("--topic", help="With --owner: only leases of this topic.")
@_yes
@speaks
def release(
    client: Client,
    output: Output,
    places: tuple[PlaceName, ...],
    group: str | None,
    owner: str | None,
    topic: str | None,
    yes: bool,
) -> None:
    """End leases without counting the attempts: the messages are delivered again at once.

    A worker that is still busy with one of them does its work a second time.

    \b
    [bold]Examples[/]
      slipstream message release orders/0/17 --group billing
      slipstream message release --owner worker-3
    """
    if bool(places) == bool(owner):
        raise click.UsageError("name messages and their --group, or an --owner")
    if owner:
        _confirm(f"End every lease of {owner}{f' in {topic}' if topic else ''}?", yes)
        found = client.release_owner(owner, topic=topic, group=group)
        if output.as_json:
            output.json(found)
            return
        output.say(f"{counted(found.released, 'lease')} of {owner} released")
        if found.groups:
            output.table(
                ["TOPIC", "GROUP", ">RELEASED"], [(each.topic, each.group, each.released) for each in found.groups]
            )
        return
    if group is None:
        raise click.UsageError("name the --group whose messages these are")
    name = group
    _operate(output, places, "released", lambda topic_name, each: client.release_messages(topic_name, name, each))


def _confirm(question: str, yes: bool) -> None:
    if not yes:
        click.confirm(question, abort=True, err=True)


def _operate(
    output: Output,
    places: tuple[PlaceName, ...],
    done: str,
    operate: Callable[[str, list[Place]], OperationResponse],
) -> None:
    """Do it topic by topic; exit with 1 where it could not be done to every message."""
    from slipstream.api import Place  # noqa: PLC0415

    by_topic: dict[str, list[Place]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(Place(place.partition, place.offset))
    count = 0
    failed: list[tuple[str, Failure]] = []
    for topic, each in by_topic.items():
        answer = operate(topic, each)
        count += answer.done
        failed += [(topic, failure) for failure in answer.failed]
    if output.as_json:
        rows: list[Any] = [{"topic": topic, **msgspec.structs.asdict(failure)} for topic, failure in failed]
        output.json({"done": count, "failed": rows})
    else:
        output.say(f"{counted(count, 'message')} {done}")
        for topic, failure in failed:
            output.note(f"{topic}/{failure.partition}/{failure.offset}: {failure.message}")
    if failed:
        sys.exit(NOT_ALL_DONE)
