"""`slipstream pipeline replay`: what tables have kept, as messages once more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich.markup import escape

from slipstream.cli.complete import complete_table, complete_topic
from slipstream.cli.output import EXIT_CODES, INTERRUPTED, RETRY_FOR_MS, Output, answering, client_advice
from slipstream.cli.pipeline_run import stopping
from slipstream.cli.progress import bar
from slipstream.cli.replay_asking import agreed, need_answer, note_spark, replay_settings, show_sample
from slipstream.cli.spark_options import spark_options
from slipstream.cli.table_folder import exit_code
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.client import Client
    from slipstream.pipeline.replay.asked import Asked
    from slipstream.pipeline.replay.folder import Replay
    from slipstream.pipeline.replay.plan import Finished, PassedOver, Plan
    from slipstream.pipeline.replay.replaying import Asking
    from slipstream.pipeline.replay.selection import Seen
    from slipstream.pipeline.settings import PipelineSettings

HINTED_TOPICS = 3
EXAMPLES_MAX = 5
"""Of messages that were passed over."""
PASSED_OVER = "passed_over"


@click.command(epilog=EXIT_CODES)
@click.option("--table", required=True, shell_complete=complete_table, help="dead_letters, download_tasks or messages.")
@click.option("--where", default="", help="Which rows: an expression of Spark SQL over the columns of the table.")
@click.option("--all", "everything", is_flag=True, help="All rows, instead of --where.")
@click.option(
    "--to",
    default="",
    shell_complete=complete_topic,
    help="The topic; jobs.tasks is that of the namespace. Without it: jobs.tasks, or where each message came from.",
)
@click.option("--limit", type=click.IntRange(1), help="The first so many, the oldest first.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages a second.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--again", is_flag=True, help="Once more, though the same was replayed before.")
@click.option("-s", "--server", "url", help="Address of the server; also SLIPSTREAM_URL.")
@click.option("--bus", type=click.Choice(["slipstream", "nats"]), help="Only slipstream can; also PIPELINE_BUS.")
@click.option("--tables", help="The folder of the tables; also PIPELINE_TABLES.")
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def replay(
    table: str,
    where: str,
    everything: bool,
    to: str,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    again: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Send rows of a table back as messages, with their keys and attributes, each once.

    Spark selects over all that the table has kept. It shows how many there are and some of them, and asks. Interrupted
    or killed, the same command goes on where it was; one that was finished is not done again without --again. For slips
    that failed there is `slipstream pipeline rerun`.

    \b
    [bold]Examples[/]
      slipstream pipeline replay --table dead_letters --where "failure_code = 'DOWNLOAD_TIMEOUT'" --to jobs.tasks
      slipstream pipeline replay --table messages --where "topic = 'orders' AND offset >= 1200" --rate 100
    """
    with answering(as_json, exit_code, client_advice) as output:
        from slipstream.client import Client  # noqa: PLC0415 - --help needs none of it
        from slipstream.pipeline.replay.replaying import asking, check_topics, question_of  # noqa: PLC0415

        if bool(where.strip()) == everything:
            raise click.UsageError("say which rows: --where \"failure_code = 'DOWNLOAD_TIMEOUT'\"; or --all")
        settings = replay_settings(given)
        question = question_of(settings, table, where, to, limit or 0)
        with Client(settings.url, retry_for_ms=RETRY_FOR_MS) as client:
            check_topics(client, [question.to] if question.to else [])
        with (
            asking(settings, question, again=again, dry_run=dry_run) as asked,
            # Who sends has patience of its own, and hears Ctrl-C meanwhile; the client would not.
            Client(settings.url, retry_for_ms=RETRY_FOR_MS) as client,
        ):
            found = asked.found
            if found is not None and found.finished is not None:
                _say_finished(output, found, found.finished)
            elif dry_run and found is not None:
                _say_unfinished(output, client, found)
            else:
                new = None
                if found is None:
                    need_answer(yes=yes, dry_run=dry_run)
                    new = _composed(output, asked, client, yes=yes, dry_run=dry_run)
                if (replay := found or new) is not None:
                    _send(output, settings, client, replay, rate, is_new=found is None)


# What there is


def _composed(output: Output, asked: Asking, client: Client, *, yes: bool, dry_run: bool) -> Replay | None:
    question: Asked = asked.question  # type: ignore[assignment]

    def agree(seen: Seen) -> bool:
        show_sample(output, seen.sample)
        _say_seen(output, question, seen, dry_run=dry_run)
        asking = f"Write {counted(seen.count, 'message')} to {_where_to(seen)}?"
        return agreed(asking, seen.count, yes=yes, dry_run=dry_run)

    note_spark(output, asked.settings, question.table)
    return asked.compose(client, agree)


def _say_seen(output: Output, question: Asked, seen: Seen, *, dry_run: bool) -> None:
    if output.as_json and (dry_run or not seen.count):
        output.json({"table": question.table, "count": seen.count, "left_out": seen.left_out, "topics": seen.topics})
    left_out = (
        f"; {seen.left_out:,} left out: older ones of the same resource, what is stored by now, or no tasks"
        if seen.left_out
        else ""
    )
    if not seen.count:
        output.say(f"nothing to replay: no row of {question.table} is selected{left_out}")
        return
    would = "would go" if dry_run else "go"
    output.say(f"{counted(seen.count, 'message')} from {question.table} {would} to {escape(_where_to(seen))}{left_out}")


def _where_to(seen: Seen) -> str:
    if len(seen.topics) == 1:
        return next(iter(seen.topics))
    return ", ".join(f"{name} ({count:,})" for name, count in seen.topics.items())


# What was there before


def _say_finished(output: Output, found: Replay, finished: Finished) -> None:
    passed_over = finished.counts.get(PASSED_OVER, 0)
    if output.as_json:
        output.json(_answer(found, "finished before", finished.rows, passed_over))
        return
    at = finished.at.isoformat(" ", "seconds")
    written = f"{counted(finished.rows - passed_over, 'message')}{_beside(passed_over)}"
    output.say(f"this was replayed before: {written}, finished at {at} (replay {found.plan.id})")
    output.note(f"[dim]All of it once more: --again.{escape(_what_came_since(found.plan))}[/]")


def _what_came_since(plan: Plan) -> str:
    """Said by offsets: what was stored before it and came into the table after it would be left out by a time."""
    if len(plan.newest) > HINTED_TOPICS:
        return ""
    offsets = [f"offset > {offset}" for offset in plan.newest.values()]
    if len(offsets) == 1:
        return f" Only what came since: add  AND {offsets[0]}  to --where"
    conditions = [f"topic = '{topic}' AND {each}" for topic, each in zip(plan.newest, offsets, strict=True)]
    return f" Only what came since: add  AND ({' OR '.join(conditions)})  to --where"


def _say_unfinished(output: Output, client: Client, found: Replay) -> None:
    from slipstream.pipeline.replay.sending import Sender  # noqa: PLC0415

    reached = Sender(client, found, commit_messages=1, commit_bytes=1).reached()
    if output.as_json:
        output.json(_answer(found, "unfinished", reached, len(found.passed_over(reached))))
        return
    output.say(
        f"replay {found.plan.id} of this is not finished: {_so_far(found, reached)}; without --dry-run it goes on"
    )


def _so_far(found: Replay, reached: int) -> str:
    passed_over = len(found.passed_over(reached))
    return f"{reached - passed_over:,} of {counted(found.plan.count, 'message')} are written{_beside(passed_over)}"


def _beside(passed_over: int) -> str:
    return f", {passed_over:,} passed over" if passed_over else ""


def _answer(found: Replay, state: str, reached: int, passed_over: int) -> dict[str, Any]:
    plan = found.plan
    return {
        "id": plan.id,
        "state": state,
        "written": reached - passed_over,
        PASSED_OVER: passed_over,
        "count": plan.count,
        "left_out": plan.left_out,
        "versions": plan.versions,
    }


# Writing


def _send(
    output: Output, settings: PipelineSettings, client: Client, found: Replay, rate: float | None, *, is_new: bool
) -> None:
    from slipstream.pipeline.replay.sending import Sender  # noqa: PLC0415

    sender = Sender(
        client,
        found,
        commit_messages=settings.replay_commit_messages,
        commit_bytes=settings.replay_commit_bytes,
        rate=rate,
    )
    if not is_new:
        output.note(f"going on with replay {found.plan.id}: {_so_far(found, sender.reached())}")
    with bar(output, "replaying", found.plan.count) as told, stopping(sender.stop):
        reached = sender.send(told)
    if reached < found.plan.count:
        output.note(f"interrupted: {_so_far(found, reached)}; the same command goes on")
        sys.exit(INTERRUPTED)
    passed_over = found.passed_over(reached)
    found.finish({PASSED_OVER: len(passed_over)} if passed_over else None)
    _say_written(output, found, reached, passed_over)
    if passed_over:
        sys.exit(1)


def _say_written(output: Output, found: Replay, reached: int, passed_over: list[PassedOver]) -> None:
    if output.as_json:
        output.json(_answer(found, "finished", reached, len(passed_over)) | {"refusals": passed_over[:EXAMPLES_MAX]})
        return
    count = len(passed_over)
    output.say(f"{counted(reached - count, 'message')} written{_beside(count)} (replay {found.plan.id})")
    for each in passed_over[:EXAMPLES_MAX]:
        output.note(f"passed over {escape(each.place)}: {escape(each.reason)}")
    if count > EXAMPLES_MAX:
        output.note(f"[dim]All {count:,} that were passed over: {escape(str(found.passed_over_path))}[/]")
