"""`slipstream pipeline rerun`: slips that failed at a step, from there on."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich.markup import escape

from slipstream.cli.output import EXIT_CODES, INTERRUPTED, Output, answering
from slipstream.cli.progress import bar
from slipstream.cli.replay_asking import agreed, need_answer, note_spark, replay_settings, show_sample
from slipstream.cli.slip_store import exit_code as slip_exit_code
from slipstream.cli.slip_store import slip_settings
from slipstream.cli.spark_options import spark_options
from slipstream.cli.table_folder import exit_code
from slipstream.cli.values import When
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.pipeline.replay.asked import SlipsAsked
    from slipstream.pipeline.replay.failed_runs import SeenRuns
    from slipstream.pipeline.replay.folder import Replay
    from slipstream.pipeline.replay.plan import Reached
    from slipstream.pipeline.replay.replaying import Asking
    from slipstream.pipeline.replay.rerunning import Refusal
    from slipstream.slip import SlipSettings


@click.command(epilog=EXIT_CODES)
@click.option("--failed-at", required=True, metavar="STEP", help="The step that they failed at, for good.")
@click.option("--from", "from_step", default="", metavar="STEP", help="The first step to do again, if it is another.")
@click.option("--since", default="", metavar="TIME", help="Ended then or later (2030-01-31T12:00Z, or 2h ago as 2h).")
@click.option("--until", default="", metavar="TIME", help="Ended before this time.")
@click.option("--type", "event_type", default="", help="Only events of this type.")
@click.option("--limit", type=click.IntRange(1), help="The first so many, the oldest first.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Slips a second.")
@click.option("--dry-run", is_flag=True, help="Only show which.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--store", help="What router and workers share: a file, or redis://…; also SLIP_STORE.")
@click.option("--tables", help="The folder of the tables; also PIPELINE_TABLES.")
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def rerun(
    failed_at: str,
    from_step: str,
    since: str,
    until: str,
    event_type: str,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run again every slip that failed at a step, from that step on, each once.

    Spark finds them in the tables; the router runs them, as after `slipstream slip rerun`. What was run again since, or
    cancelled, is left alone. Where the store has forgotten a slip, its dead letter is taken, if the tables have it.
    Interrupted or killed, the same command goes on; said again later, it runs what has failed since.

    \b
    [bold]Examples[/]
      slipstream pipeline rerun --failed-at charge --since 2026-11-15T08:00Z --until 2026-11-15T09:30Z
      slipstream pipeline rerun --failed-at ship --from charge --since 2h --type order.v1 --dry-run
    """
    with answering(as_json, lambda error: exit_code(error) or slip_exit_code(error)) as output:
        from slipstream.pipeline.replay.failed_runs import Between  # noqa: PLC0415 - --help needs none of it
        from slipstream.pipeline.replay.replaying import asking, runs_question  # noqa: PLC0415

        between = Between(_time("--since", since), _time("--until", until))
        settings, slips = replay_settings(given), slip_settings(store)
        question = runs_question(
            settings, failed_at, from_step, since=since, until=until, event_type=event_type, limit=limit or 0
        )
        asyncio.run(_check_store(slips))
        with asking(settings, question, dry_run=dry_run) as asked:
            found = asked.found if asked.found is not None and asked.found.finished is None else None
            if found is not None and dry_run:
                _say_unfinished(output, found)
                return
            if found is not None:
                _note_unfinished(output, found)
            else:
                need_answer(yes=yes, dry_run=dry_run)
                found = _composed(output, asked, question, between, yes=yes, dry_run=dry_run)
            if found is not None:
                _rerun(output, slips, found, question, rate)


def _time(option: str, text: str) -> dt.datetime | None:
    """The text is what the question is known by; what it means is settled when it is first asked."""
    try:
        return When().convert(text, None, None) if text else None
    except click.BadParameter as error:
        raise click.UsageError(f"{option}: {error.message}") from error


async def _check_store(slips: SlipSettings) -> None:
    from slipstream.slip.oversight import existing_store  # noqa: PLC0415

    async with existing_store(slips.store):
        pass


# What there is


def _composed(
    output: Output, asked: Asking, question: SlipsAsked, between: Any, *, yes: bool, dry_run: bool
) -> Replay | None:
    def agree(seen: SeenRuns) -> bool:
        show_sample(output, seen.sample)
        _say_seen(output, question, seen, dry_run=dry_run)
        asked = f"Run {counted(seen.count, 'slip')} again from {question.from_step}?"
        return agreed(asked, seen.count, yes=yes, dry_run=dry_run)

    note_spark(output, asked.settings, "slip_runs")
    return asked.compose_runs(between, agree)


def _say_seen(output: Output, question: SlipsAsked, seen: SeenRuns, *, dry_run: bool) -> None:
    if output.as_json and (dry_run or not seen.count):
        output.json({name: getattr(seen, name) for name in ("count", "branches", "cancelled", "run_again")})
    reasons = [
        (seen.run_again, "run again since"),
        (seen.cancelled, "cancelled"),
        (seen.branches, "branches, which are run again with their slips"),
    ]
    left_alone = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
    beside = f"; left alone: {left_alone}" if left_alone else ""
    if not seen.count:
        output.say(f"nothing to run again: no slip failed at {escape(question.failed_at)} then{beside}")
        return
    would = "would be run" if dry_run else "are to be run"
    output.say(f"{counted(seen.count, 'slip')} {would} again from {escape(question.from_step)}{beside}")


def _say_unfinished(output: Output, found: Replay) -> None:
    if output.as_json:
        output.json({"id": found.plan.id, "count": found.plan.count, "done": found.reached.rows})
        return
    output.say(
        f"replay {found.plan.id} of this is not finished: {_so_far(found, found.reached)}; without --dry-run it goes on"
    )


def _note_unfinished(output: Output, found: Replay) -> None:
    output.note(f"going on with replay {found.plan.id}: {_so_far(found, found.reached)}")


def _so_far(found: Replay, reached: Reached) -> str:
    return f"{reached.rows:,} of {counted(found.plan.count, 'slip')} are done"


# Running them again


def _rerun(output: Output, slips: SlipSettings, found: Replay, question: SlipsAsked, rate: float | None) -> None:
    reached, refusals = asyncio.run(_rerun_in_loop(output, slips, found, question, rate))
    if reached.rows < found.plan.count:
        output.note(f"interrupted: {_so_far(found, reached)}; the same command goes on")
        sys.exit(INTERRUPTED)
    found.finish(reached.counts)
    _answer(output, found, question, reached, refusals)


async def _rerun_in_loop(
    output: Output, slips: SlipSettings, found: Replay, question: SlipsAsked, rate: float | None
) -> tuple[Reached, list[Refusal]]:
    from slipstream.pipeline.replay.rerunning import Rerunner  # noqa: PLC0415
    from slipstream.slip.oversight import existing_store  # noqa: PLC0415

    async with existing_store(slips.store) as store:
        rerunner = Rerunner(store, slips, found, question.from_step, rate)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, rerunner.stop)
        with bar(output, "running again", found.plan.count) as told:
            return await rerunner.run(told), rerunner.refusals


def _answer(output: Output, found: Replay, question: SlipsAsked, reached: Reached, refusals: list[Refusal]) -> None:
    from slipstream.pipeline.replay.rerunning import GONE, REFUSED, RERUN, RUN_AGAIN  # noqa: PLC0415

    counts = {name: reached.counts.get(name, 0) for name in (RERUN, RUN_AGAIN, GONE, REFUSED)}
    if output.as_json:
        output.json({"id": found.plan.id, **counts, "refusals": refusals})
    else:
        words = [
            (counts[RUN_AGAIN], "were run again meanwhile, and left alone"),
            (counts[GONE], "are not to be had: neither the store nor the tables have kept them"),
            (counts[REFUSED], "cannot be run again from there"),
        ]
        beside = "".join(f"; {count:,} {reason}" for count, reason in words if count)
        slips, step = counted(counts[RERUN], "slip"), escape(question.from_step)
        output.say(f"{slips} run again from {step}{beside} (replay {found.plan.id})")
        for refusal in refusals:
            output.note(f"[dim]{escape(refusal.correlation_id)}: {escape(refusal.reason)}[/]")
    if counts[GONE] or counts[REFUSED]:
        sys.exit(1)
