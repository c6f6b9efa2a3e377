"""`slipstream slip`: where messages are on their itineraries, and what a person can do about it."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import rich_click as click

from slipstream.cli.complete import complete_slip
from slipstream.cli.output import EXIT_CODES, Output, one_line, warn_if
from slipstream.cli.slip_control import approve, cancel, copy, deny, pause, pauses, rerun, resume, signal, submit
from slipstream.cli.slip_routes import check
from slipstream.cli.slip_run import router, run, worker
from slipstream.cli.slip_store import on_a_store
from slipstream.cli.values import Duration
from slipstream.durations import duration_text

if TYPE_CHECKING:
    from slipstream.slip import SlipSettings
    from slipstream.slip.oversight import Kind, Listed
    from slipstream.slip.standing import Standing
    from slipstream.slip.store import Store, Tracked


@click.group()
def slip() -> None:
    """See where messages are on their itineraries, and help those that do not move.

    All of it goes through the store that router and workers share, at --store or SLIP_STORE: also beside an application
    that has its broker inside. What is asked for here is done by the router, as soon as it looks.
    """


# Looking


@slip.command(epilog=EXIT_CODES)
@click.argument("correlation_id", shell_complete=complete_slip)
@on_a_store
async def show(store: Store, settings: SlipSettings, output: Output, correlation_id: str) -> None:
    """Draw where a message was, is, and still has to go.

    A line is an attempt at a step: its bar is ··· while the message was on its way or in a pause, ███ while somebody
    worked at it, ─── while it waited for a person, a signal or branches. The last line says what is going on.

    \b
    [bold]Examples[/]
      slipstream slip show c-123
      slipstream slip show c-123 --json
    """
    from slipstream.cli.slip_timeline import draw  # noqa: PLC0415
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    found = await Oversight(store, settings).timeline(correlation_id)
    if output.as_json:
        output.json(found)
        return
    for line in draw(found, output.out.width, dt.datetime.now(dt.UTC)):
        output.out.print(line, soft_wrap=True)


@slip.command("list", epilog=EXIT_CODES)
@click.option(
    "--stuck",
    is_flag=True,
    help="Only slips that have not moved for a while, though they wait for nobody.",
)
@click.option("--for", "unmoved_ms", type=Duration(), help="With --stuck: how long that is; also SLIP_STUCK_AFTER_MS.")
@click.option("--failed", is_flag=True, help="Those that are dead letters.")
@click.option("--branches", is_flag=True, help="Also the branches of parallel steps, which are messages of their own.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@on_a_store
async def list_slips(
    store: Store,
    settings: SlipSettings,
    output: Output,
    stuck: bool,
    unmoved_ms: int | None,
    failed: bool,
    branches: bool,
    limit: int,
) -> None:
    """List messages, those that moved last first.

    \b
    [bold]Examples[/]
      slipstream slip list --stuck
      slipstream slip list --stuck --for 1h
    """
    from slipstream.slip.oversight import Oversight  # noqa: PLC0415

    if stuck and failed:
        raise click.UsageError("--stuck are under way and --failed are not: one of them")
    if unmoved_ms is not None and not stuck:
        raise click.UsageError("--for goes with --stuck")
    now_ms = time.time_ns() // 1_000_000
    unmoved_ms = settings.stuck_after_ms if unmoved_ms is None else unmoved_ms
    kind: Kind = "stuck" if stuck else "dead-lettered" if failed else ""
    page = await Oversight(store, settings).slips(kind, limit=limit, branches=branches, unmoved_ms=unmoved_ms)
    found = page.slips
    if output.as_json:
        for each in found:
            standing, plain = each.timeline.standing, _plain(each.tracked)
            output.json({**plain, "going": standing.going, "at": standing.step, "reason": _reason(standing)})
    elif not found:
        output.say(
            f"nothing is stuck: all slips have moved in the last {duration_text(unmoved_ms)}, or wait by design"
            if stuck
            else "no message has failed, of those that are kept"
            if failed
            else "no messages: none has come yet, or no router keeps their history"
        )
    else:
        _show_list(output, found, now_ms)
        if page.more:
            output.note(f"[dim]there are more than {limit}: see them with --limit[/]")


WIDE = 110
"""From here on there is room for the type of the event."""


def _show_list(output: Output, found: list[Listed], now_ms: int) -> None:
    from slipstream.cli.slip_timeline import fit  # noqa: PLC0415

    wide = output.out.width >= WIDE
    names = ["CORRELATION ID", *(["TYPE"] if wide else []), "STATE", "STEP", ">MOVED"]
    rows = [
        (
            one_line(each.tracked.slip),
            *([one_line(each.tracked.kind)] if wide else []),
            warn_if(each.timeline.state == "dead-lettered", IN_A_WORD.get(_going(each), _going(each))),
            one_line(each.timeline.standing.step) or "-",
            f"{duration_text(max(0, now_ms - each.tracked.moved_ms))} ago",
        )
        for each in found
    ]
    # The reason has the room that the others leave: a correlationId that is cut short is good for nothing.
    taken = sum(max(len(name) + 1, *(len(row[column]) for row in rows)) + 2 for column, name in enumerate(names))
    room = max(20, output.out.width - taken)
    output.table(
        [*names, "WHY"],
        [(*row, fit(_reason(each.timeline.standing), room)) for row, each in zip(rows, found, strict=True)],
    )


def _going(each: Listed) -> str:
    return each.timeline.standing.going


IN_A_WORD = {
    "dead-lettered": "dead letter",
    "approval": "waits for approval",
    "signal": "waits for a signal",
    "chunks": "waits for chunks",
    "branches": "waits for branches",
    "at work": "working",
    "worker lost": "worker lost",
    "not taken up": "not taken yet",
    "no worker": "no worker",
    "ending": "no router?",
}


def _reason(standing: Standing) -> str:
    from slipstream.cli.slip_timeline import error_text  # noqa: PLC0415

    return error_text(standing.error) if standing.error is not None else one_line(standing.reason)


def _plain(tracked: Tracked) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    fields: dict[str, Any] = msgspec.to_builtins(tracked)
    return {"correlationId": fields.pop("slip"), "type": fields.pop("kind"), **fields}


for command in (submit, approve, deny, signal, pause, resume, pauses, rerun, copy, cancel, run, router, worker, check):
    slip.add_command(command)

click.rich_click.COMMAND_GROUPS["slipstream slip"] = [
    {"name": "Look", "commands": ["show", "list", "pauses"]},
    {"name": "Help a message", "commands": ["approve", "deny", "signal", "rerun", "copy", "cancel"]},
    {"name": "Help a step", "commands": ["pause", "resume"]},
    {"name": "Run", "commands": ["run", "router", "worker", "check", "submit"]},
]
