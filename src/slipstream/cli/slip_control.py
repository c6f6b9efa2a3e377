"""What people do with slips from the command line: decide, pause, run again. The store takes it down for the router."""

from __future__ import annotations

import datetime as dt
import getpass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.complete import complete_paused_step, complete_slip, complete_slip_step
from slipstream.cli.output import EXIT_CODES, Output
from slipstream.cli.slip_store import on_a_store
from slipstream.cli.values import Duration, Json
from slipstream.durations import duration_text

if TYPE_CHECKING:
    from slipstream.slip import SlipSettings
    from slipstream.slip.store import Store

SEEN_LATELY = 1_000

# Decisions


def _by() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container may have users without a name


def _word_options(command: Any) -> Any:
    for option in reversed(
        [
            click.argument("correlation_id", shell_complete=complete_slip),
            click.argument("step", shell_complete=complete_slip_step),
            click.option("--by", default=_by, help="Who says so; without it, the user who types it."),
            click.option("--note", default="", help="Why; the message carries it on."),
            click.option("--data", type=Json(), help="JSON for the steps that follow, or @file."),
        ]
    ):
        command = option(command)
    return command


@click.command(epilog=EXIT_CODES)
@_word_options
@on_a_store
async def approve(store: Store, settings: SlipSettings, output: Output, **given: Any) -> None:
    """Approve what waits at a step: the message goes on.

    It may be said before the message has come there, which then goes on at once. The first word counts.

    \b
    [bold]Examples[/]
      slipstream slip approve c-123 manager --note 'known customer'
    """
    await _give_word(store, settings, output, "approve", **given)


@click.command(epilog=EXIT_CODES)
@_word_options
@on_a_store
async def deny(store: Store, settings: SlipSettings, output: Output, **given: Any) -> None:
    """Deny what waits at a step: it has failed there, and what was done is undone."""
    await _give_word(store, settings, output, "deny", **given)


@click.command(epilog=EXIT_CODES)
@_word_options
@on_a_store
async def signal(store: Store, settings: SlipSettings, output: Output, **given: Any) -> None:
    """Tell a step that waits for a signal what it waits for.

    \b
    [bold]Examples[/]
      slipstream slip signal c-123 callback --data '{"status": "paid"}'
      slipstream slip signal c-123 callback --data @answer.json
    """
    await _give_word(store, settings, output, "signal", **given)


async def _give_word(
    store: Store,
    settings: SlipSettings,
    output: Output,
    word: Literal["approve", "deny", "signal"],
    *,
    correlation_id: str,
    step: str,
    by: str,
    note: str,
    data: Any,
) -> None:
    from slipstream.slip import Signal  # noqa: PLC0415
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    decision: Literal["approve", "deny"] = "deny" if word == "deny" else "approve"
    waits = await Oversight(store, settings).signal(Signal(correlation_id, step, decision, by, note, data))
    if output.as_json:
        output.json({"correlationId": correlation_id, "step": step, "decision": decision, "by": by, "waits": waits})
        return
    done = {"approve": "approved", "deny": "denied", "signal": "told"}[word]
    if waits:
        output.say(f"{done} {escape(step)} of {escape(correlation_id)}: {_soon(settings)}")
    else:
        output.say(
            f"{done} {escape(step)} of {escape(correlation_id)}, which does not wait there yet: the word is kept for it"
        )


def _soon(settings: SlipSettings) -> str:
    return f"the router takes it up within {duration_text(settings.poll_ms)}, where one runs"


# A step for all messages


@click.command(epilog=EXIT_CODES)
@click.argument("step")
@click.option("--reason", default="", help="Why; whoever looks at a message that waits there reads it.")
@click.option("--for", "for_ms", type=Duration(), help="Resumed by itself after this time (10m).")
@on_a_store
async def pause(
    store: Store, settings: SlipSettings, output: Output, step: str, reason: str, for_ms: int | None
) -> None:
    """Let nobody work at a step: its messages wait, and lose no attempt by it.

    Who is at work there finishes. Undoing the step is paused with it.

    \b
    [bold]Examples[/]
      slipstream slip pause charge --reason 'the bank is away' --for 30m
    """
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    held = await Oversight(store, settings).pause(step, reason, seconds=None if for_ms is None else for_ms / 1000)
    if output.as_json:
        output.json({"step": step, "paused": held is not None, **(msgspec.to_builtins(held) if held else {})})
    else:
        until = f"for {duration_text(for_ms)}" if for_ms is not None else "until it is resumed"
        output.say(f"{escape(step)} is paused {until}: workers follow within {duration_text(settings.poll_ms)}")
        if not any(step in each.step for each in await store.tracked(limit=SEEN_LATELY)):
            output.note(f"[dim]no message has been at {escape(step)} lately: is that its name?[/]")


@click.command(epilog=EXIT_CODES)
@click.argument("step", shell_complete=complete_paused_step)
@on_a_store
async def resume(store: Store, settings: SlipSettings, output: Output, step: str) -> None:
    """Let work at a step go on."""
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    was_paused = await Oversight(store, settings).resume(step)
    if output.as_json:
        output.json({"step": step, "wasPaused": was_paused})
    elif was_paused:
        output.say(f"resumed {escape(step)}; workers follow within {duration_text(settings.poll_ms)}")
    else:
        output.say(f"{escape(step)} was not paused")


@click.command(epilog=EXIT_CODES)
@on_a_store
async def pauses(store: Store, settings: SlipSettings, output: Output) -> None:
    """List the steps that are paused."""
    from slipstream.cli.slip_timeline import clock  # noqa: PLC0415
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    held = await Oversight(store, settings).pauses()
    now = dt.datetime.now(dt.UTC)
    if output.as_json:
        for step, hold in held.items():
            output.json({"step": step, **msgspec.to_builtins(hold)})
    elif not held:
        output.say("no step is paused")
    else:
        output.table(
            ["STEP", "UNTIL", "REASON"],
            [
                (
                    step,
                    "resumed" if hold.until_ms is None else clock(_time(hold.until_ms), now),
                    hold.reason or "-",
                )
                for step, hold in held.items()
            ],
        )


def _time(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


# Again


@click.command(epilog=EXIT_CODES)
@click.argument("correlation_id", shell_complete=complete_slip)
@click.option("--from", "step", required=True, shell_complete=complete_slip_step, help="The first step to do again.")
@on_a_store
async def rerun(store: Store, settings: SlipSettings, output: Output, correlation_id: str, step: str) -> None:
    """Run a message again from a step on, with the payload as it was when it came there.

    It may have ended, or be stuck. What was undone cannot be built upon: run it again from there, or from before it.

    \b
    [bold]Examples[/]
      slipstream slip rerun c-123 --from charge
    """
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    found = await Oversight(store, settings).rerun(correlation_id, step)
    if found.state == "under way":
        output.note(f"[yellow]{escape(correlation_id)} had not ended: what is under way of it is dropped[/]")
    if output.as_json:
        output.json({"correlationId": correlation_id, "from": step, "run": found.runs[-1].number + 1})
    else:
        output.say(f"{escape(correlation_id)} runs again from {escape(step)}: {_soon(settings)}")


@click.command(epilog=EXIT_CODES)
@click.argument("correlation_id", shell_complete=complete_slip)
@click.option("--from", "step", required=True, shell_complete=complete_slip_step, help="The first step of the copy.")
@click.option("--payload", type=Json(), default=msgspec.UNSET, help="JSON instead of its payload, or @file.")
@click.option("--id", "copied_id", default="", help="The correlationId of the copy; without it, one is made up.")
@on_a_store
async def copy(
    store: Store,
    settings: SlipSettings,
    output: Output,
    correlation_id: str,
    step: str,
    payload: Any,
    copied_id: str,
) -> None:
    """Make a message of its own out of another, from a step on, and send it on its way.

    \b
    [bold]Examples[/]
      slipstream slip copy c-123 --from charge --payload @mended.json
    """
    from slipstream.slip import Control  # noqa: PLC0415
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    await Oversight(store, settings).timeline(correlation_id)
    copied = await Control(store, settings).copy(
        correlation_id, step, payload=payload, correlation_id_of_copy=copied_id
    )
    if output.as_json:
        output.json({"correlationId": copied, "copyOf": correlation_id, "from": step})
    else:
        output.say(f"{escape(copied)} is a copy of {escape(correlation_id)} from {escape(step)}: {_soon(settings)}")


# Beginning and ending


@click.command(epilog=EXIT_CODES)
@click.argument("event_type")
@click.argument("payload", type=Json(), default="{}")
@click.option("--id", "correlation_id", default="", help="Its correlationId; without it, one is made up.")
@click.option("--source", default="command-line", show_default=True, help="Who sends it.")
@on_a_store
async def submit(
    store: Store,
    settings: SlipSettings,
    output: Output,
    event_type: str,
    payload: Any,
    correlation_id: str,
    source: str,
) -> None:
    """Submit a new event through the store, also if the bus is inside another process.

    An event of a type that no running router has a route for is refused. Without a running router it waits for one.

    \b
    [bold]Examples[/]
      slipstream slip submit chat.message.v1 '{"text": "!hello"}'
      slipstream slip submit order.v1 @order.json --id o-17
    """
    import secrets  # noqa: PLC0415

    from slipstream.slip import Control, Envelope, Event  # noqa: PLC0415

    correlation_id = correlation_id or secrets.token_hex(16)
    await Control(store, settings).submit(Event(Envelope("1", source, correlation_id), event_type, payload))
    if output.as_json:
        output.json({"correlationId": correlation_id})
    else:
        output.say(f"{escape(correlation_id)} is submitted: {_soon(settings)}")


@click.command(epilog=EXIT_CODES)
@click.argument("correlation_id", shell_complete=complete_slip)
@click.option("--reason", default="", help="Why; it stands in the dead letter.")
@on_a_store
async def cancel(store: Store, settings: SlipSettings, output: Output, correlation_id: str, reason: str) -> None:
    """End a message that is under way or stuck: what remains is skipped, what is done is undone.

    \b
    [bold]Examples[/]
      slipstream slip cancel c-123 --reason 'wrong address'
    """
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    await Oversight(store, settings).cancel(correlation_id, reason)
    if output.as_json:
        output.json({"correlationId": correlation_id})
    else:
        output.say(f"{escape(correlation_id)} is cancelled: {_soon(settings)}")
