"""`slipstream dlq`: look at dead letters and send them back."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.attempts import show_history
from slipstream.cli.bus_dlq import dlq as of_the_bus
from slipstream.cli.complete import complete_topic
from slipstream.cli.output import EXIT_CODES, INTERRUPTED, Output, payload_text, speaks
from slipstream.cli.progress import bar
from slipstream.cli.values import PlaceName, PlaceOf, When, time_text
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.api import DeadLetterItem, RedriveStatus
    from slipstream.client import Client, SyncRedrive


ARGUMENTS = "slipstream.dlq.arguments"


class _ByEngine(click.RichGroup):
    """A group with the commands of `bus dlq` if the bus is NATS and no server is named."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta[ARGUMENTS] = args[1:]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return of_the_bus.list_commands(ctx) if _is_on_nats(ctx) else super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return of_the_bus.get_command(ctx, cmd_name) if _is_on_nats(ctx) else super().get_command(ctx, cmd_name)


def _is_on_nats(context: click.Context) -> bool:
    names_server = any(each.startswith(("-s", "--server")) for each in context.meta.get(ARGUMENTS, []))
    is_on_nats = os.environ.get("MESSAGE_BUS_DRIVER") == "nats"
    return is_on_nats and not names_server and "SLIPSTREAM_URL" not in os.environ


@click.group(cls=_ByEngine)
def dlq() -> None:
    """Look at dead letters, and send them back.

    With MESSAGE_BUS_DRIVER=nats these are the commands of `slipstream bus dlq`.
    """


def _filters(command: Any) -> Any:
    for option in reversed(
        [
            click.option("-g", "--group", help="Died in this group."),
            click.option("-e", "--error", help="Part of the last error or of the reason."),
            click.option("--since", type=When(), help="Died then or later (2030-01-31T12:00Z, or 10m ago as 10m)."),
            click.option("--until", type=When(), help="Died before this time."),
        ]
    ):
        command = option(command)
    return command


@dlq.command("list", epilog=EXIT_CODES)
@click.argument("topic", required=False, shell_complete=complete_topic)
@_filters
@click.option("--redriven/--not-redriven", default=None, help="Only those that were sent back, or only the others.")
@click.option("-n", "--max", "maximum", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@speaks
def list_dead_letters(client: Client, output: Output, topic: str | None, maximum: int, **filters: Any) -> None:
    """List dead letters, of one topic or of all; each partition oldest first."""
    found: list[DeadLetterItem[bytes]] = []
    more = False
    for letter in client.dead_letters(topic, **filters):
        if len(found) == maximum:
            more = True
            break
        found.append(letter)
    if output.as_json:
        for letter in found:
            output.json(letter)
    elif not found:
        output.say("no dead letters")
    else:
        output.table(
            ["DEAD LETTER", "DIED", "GROUP", ">ATTEMPTS", "REASON", "LAST ERROR", ""], [_row(each) for each in found]
        )
        if more:
            output.note(f"[dim]there are more than {maximum}: see them with --max, or filter[/]")


def _row(letter: DeadLetterItem[bytes]) -> tuple[object, ...]:
    died = letter.envelope.dlq
    place = f"{letter.topic}/{letter.partition}/{letter.offset}"
    back = "redriven" if letter.redriven else ""
    if died is None:
        return place, time_text(letter.timestamp_ms), "", "", "", "", back
    return place, time_text(died.routed_at_ms), died.group, died.attempts, died.reason, died.last_error[:80], back


@dlq.command(epilog=EXIT_CODES)
@click.argument("place", type=PlaceOf())
@speaks
def show(client: Client, output: Output, place: PlaceName) -> None:
    """Show a dead letter whole. PLACE is topic/partition/offset, as `dlq list` shows it."""
    letter = client.dead_letter(place.topic, place.partition, place.offset)
    if output.as_json:
        output.json(letter)
        return
    died = letter.envelope.dlq
    rows: list[tuple[str, object]] = [("dead letter", f"{letter.topic}/{letter.partition}/{letter.offset}")]
    if died is not None:
        rows += [
            ("from", f"{died.original_topic}/{died.original_partition}/{died.original_offset}"),
            ("group", died.group),
            ("died", time_text(died.routed_at_ms)),
            ("reason", died.reason),
            ("attempts", died.attempts),
            ("last error", died.last_error),
        ]
    rows.append(("redriven", "yes" if letter.redriven else "no"))
    for name in ("run_id", "step_id", "parent_step_id", "tenant_id", "idempotency_key", "deadline", "labels"):
        value = getattr(letter.envelope, name)
        if value:
            rows.append((name, value))
    rows += [(f"attribute {name}", value) for name, value in (letter.attributes or {}).items()]
    rows.append(("key", payload_text(letter.key)))
    output.table(["", ""], rows)
    output.out.print("\n" + escape(payload_text(letter.value)), soft_wrap=True)
    show_history(output, letter.history)


@dlq.command(epilog=EXIT_CODES)
@click.argument("topic", shell_complete=complete_topic)
@_filters
@click.option("-m", "--message", "places", multiple=True, type=PlaceOf(), help="Only this one; may be repeated.")
@click.option("--to", help="Another topic, instead of the one each came from.")
@click.option("--all-groups", is_flag=True, help="To every group of the topic, not only the one that each failed for.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages a second.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--no-wait", is_flag=True, help="Start it and return; see how it goes with `dlq redrives`.")
@speaks
def redrive(
    client: Client,
    output: Output,
    topic: str,
    places: tuple[PlaceName, ...],
    dry_run: bool,
    yes: bool,
    no_wait: bool,
    **selection: Any,
) -> None:
    """Send dead letters of a topic back to it, or to another topic. Repeating it sends nothing twice.

    Only the group that a message failed for gets it again, unless you add --all-groups. In another topic (--to) every
    group gets it. Ctrl-C cancels the redrive; messages sent by then stay sent.

    \b
    [bold]Examples[/]
      slipstream dlq redrive orders --error timeout --rate 100
      slipstream dlq redrive orders --message dlq.orders/0/17 --to orders.retry
    """
    from slipstream.api import Place  # noqa: PLC0415

    for place in places:
        if place.topic.removeprefix("dlq.") != topic.removeprefix("dlq."):
            raise click.UsageError(f"{place.topic}/{place.partition}/{place.offset} is not a dead letter of {topic}")
        client.dead_letter(place.topic, place.partition, place.offset)  # raises NotFound
    selection["messages"] = [Place(place.partition, place.offset) for place in places] or None
    found = client.redrive(topic, dry_run=True, **(selection | {"rate": None})).wait()
    if dry_run or not found.redriven:
        _answer(output, msgspec.structs.replace(found, dry_run=dry_run))
        return
    if not yes:
        letters = f"{counted(found.redriven, 'dead letter')} of {topic}"
        click.confirm(f"Send {letters} to {_target(**selection)}?", abort=True, err=True)
    started = client.redrive(topic, **selection)
    _answer(output, started.status if no_wait else _follow(output, started, found.redriven))


def _target(*, to: str | None, all_groups: bool, **_: Any) -> str:
    if to is not None:
        return to
    return "every group of the topic" if all_groups else "the group that each failed for"


def _follow(output: Output, started: SyncRedrive, total: int) -> RedriveStatus:
    try:
        with bar(output, "redriving", total) as told:
            return started.wait(lambda status: told(status.redriven))
    except KeyboardInterrupt:
        status = started.cancel()
        output.note(f"cancelled: {status.redriven:,} were sent back; the same command sends the rest")
        sys.exit(INTERRUPTED)


def _answer(output: Output, status: RedriveStatus) -> None:
    if output.as_json:
        output.json(status)
        return
    if status.state == "running":
        output.say(f"started redrive {status.id}")
        return
    verb = "would be sent back" if status.dry_run else "sent back"
    before = f"; {status.skipped:,} before" if status.skipped else ""
    output.say(f"{counted(status.redriven, 'dead letter')} {verb}{before}")
    if status.without_group:
        output.note(
            f"{counted(status.without_group, 'dead letter')} not sent, because the group they failed for no longer "
            "exists: send them to every group with --all-groups, or to another topic with --to"
        )


@dlq.command(epilog=EXIT_CODES)
@speaks
def redrives(client: Client, output: Output) -> None:
    """List the redrives under way, and the last ones that ended."""
    found = [each for each in client.redrives() if not each.dry_run]
    if output.as_json:
        output.json(found)
    elif not found:
        output.say("no redrives since the server started")
    else:
        output.table(
            ["ID", "STATE", "DEAD LETTERS OF", "TO", ">SENT", ">SKIPPED", "STARTED", "ERROR"],
            [
                (
                    r.id,
                    r.state,
                    r.topic,
                    r.to or ("all groups" if r.all_groups else "-"),
                    f"{r.redriven:,}",
                    f"{r.skipped:,}",
                    time_text(r.started_ms),
                    r.error,
                )
                for r in found
            ],
        )


@dlq.command(epilog=EXIT_CODES)
@click.argument("redrive_id", metavar="ID")
@speaks
def cancel(client: Client, output: Output, redrive_id: str) -> None:
    """Cancel a redrive. What was sent back by then stays so."""
    status = client.redrive_of(redrive_id).cancel()
    if output.as_json:
        output.json(status)
    else:
        output.say(f"{status.state}: {status.redriven:,} were sent back")
