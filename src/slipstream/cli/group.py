"""`slipstream group`: look at groups, move them, pause them, forget them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

import rich_click as click

from slipstream.cli.complete import complete_group, complete_topic
from slipstream.cli.output import EXIT_CODES, Output, speaks, warn_if
from slipstream.cli.topic import show_groups
from slipstream.cli.values import Duration, When, time_text
from slipstream.durations import duration_text
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.api import GroupInfo, RetryPolicyFields
    from slipstream.client import Client


@click.group()
def group() -> None:
    """Look at groups, send them elsewhere, pause and resume them, forget them."""


_topic = click.argument("topic", shell_complete=complete_topic)
_name = click.argument("name", metavar="GROUP", shell_complete=complete_group)


@group.command("list", epilog=EXIT_CODES)
@_topic
@speaks
def list_groups(client: Client, output: Output, topic: str) -> None:
    """List the groups of a topic."""
    groups = client.groups(topic)
    if output.as_json:
        output.json(groups)
    elif groups:
        show_groups(output, groups)
    else:
        output.say(f"no group has read {topic} yet")


@group.command(epilog=EXIT_CODES)
@_topic
@_name
@speaks
def show(client: Client, output: Output, topic: str, name: str) -> None:
    """Show how far a group is, and what it has in flight."""
    info = client.group(topic, name)
    if output.as_json:
        output.json(info)
        return
    show_groups(output, [info])
    if info.retry is not None:
        output.say(f"\nretries: {_retry_text(info.retry)} (set for this group)")
    output.say("")
    output.table(
        [">PARTITION", ">WATERMARK", ">LAG", ">IN FLIGHT", ">RETRYING", ">DELAYED", "OLDEST UNFINISHED", ""],
        [
            (
                p.partition,
                p.watermark,
                warn_if(p.lag > 0, f"{p.lag:,}"),
                p.in_flight,
                warn_if(p.retrying > 0, p.retrying),
                p.delayed,
                time_text(p.oldest_unfinished_ms) if p.oldest_unfinished_ms is not None else "-",
                warn_if(bool(p.unreadable), p.unreadable),
            )
            for p in info.partitions
        ],
    )
    if info.readers:
        _show_consumers(output, info)
    if info.messages:
        _show_in_flight(output, info)


def _retry_text(retry: RetryPolicyFields) -> str:
    attempts = counted(retry.max_attempts, "attempt") if retry.max_attempts else "no limit of attempts"
    if not retry.backoff_ms:
        return f"{attempts}, at once"
    longest = f" doubling to {duration_text(retry.max_backoff_ms)}" if retry.max_backoff_ms else " doubling"
    return f"{attempts}, {duration_text(retry.backoff_ms)}{longest}"


def _show_consumers(output: Output, info: GroupInfo) -> None:
    output.say("")
    output.table(
        ["CONSUMER", "KIND", ">HOLDS", ">WINDOW", ">LEASE", "STATE"],
        [
            (
                each.owner,
                each.kind,
                each.held,
                "-" if each.window is None else f"{each.window} (prefetch)" if each.prefetch else each.window,
                duration_text(each.lease_ms),
                warn_if(each.parked_ms is not None, f"parked since {time_text(each.parked_ms)}")
                if each.parked_ms is not None
                else "",
            )
            for each in info.readers
        ],
    )


def _show_in_flight(output: Output, info: GroupInfo) -> None:
    now_ms = dt.datetime.now(dt.UTC).timestamp() * 1000
    output.say("")
    output.table(
        [">PARTITION", ">OFFSET", "STATE", ">LEFT", ">ATTEMPTS", "OWNER", "LAST ERROR"],
        [
            (
                m.partition,
                m.offset,
                m.state,
                duration_text(max(0, m.until_ms - now_ms)) if m.state != "ready" else "-",
                warn_if(m.attempts > 1, m.attempts),
                m.owner,
                m.last_error[:80],
            )
            for m in info.messages
        ],
    )


@group.command(epilog=EXIT_CODES)
@_topic
@_name
@click.option("--earliest", "to", flag_value="earliest", help="To the oldest message there is.")
@click.option("--latest", "to", flag_value="latest", help="Behind the newest.")
@click.option("--offset", type=click.IntRange(0), help="To this offset, or the next higher one.")
@click.option(
    "--time",
    type=When(),
    help="To what was stored then or later (2030-01-31T12:00Z, or 10m ago as 10m).",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@speaks
def seek(
    client: Client,
    output: Output,
    topic: str,
    name: str,
    to: Literal["earliest", "latest"] | None,
    offset: int | None,
    time: dt.datetime | None,
    partition: int | None,
) -> None:
    """Send a group to another place. It lets go of what it holds and goes on from there, at once."""
    if (to is not None) + (offset is not None) + (time is not None) != 1:
        raise click.UsageError("say where to, with one of --earliest, --latest, --offset and --time")
    _answer(output, client.seek(topic, name, to=to, offset=offset, time=time, partition=partition))


@group.command(epilog=EXIT_CODES)
@_topic
@_name
@speaks
def pause(client: Client, output: Output, topic: str, name: str) -> None:
    """Deliver nothing more to a group, until it is resumed."""
    _answer(output, client.pause(topic, name))


@group.command(epilog=EXIT_CODES)
@_topic
@_name
@speaks
def resume(client: Client, output: Output, topic: str, name: str) -> None:
    """Deliver to a group again."""
    _answer(output, client.resume(topic, name))


@group.command("set", epilog=EXIT_CODES)
@_topic
@_name
@click.option("--max-attempts", type=click.IntRange(0), help="Attempts before a message is dead-lettered; 0: no limit.")
@click.option("--backoff", type=Duration(), help="First pause before a retry (100ms); it doubles.")
@click.option("--max-backoff", type=Duration(), help="Longest pause (1h).")
@click.option("--reset", is_flag=True, help="Retry as the topic does.")
@speaks
def set_(
    client: Client,
    output: Output,
    topic: str,
    name: str,
    max_attempts: int | None,
    backoff: int | None,
    max_backoff: int | None,
    reset: bool,
) -> None:
    """Set how a group retries messages that fail. What is left out is as the topic has it.

    A policy of the message or of its handler goes before it.
    """
    from slipstream.api import RetryPolicyFields  # noqa: PLC0415

    given = any(value is not None for value in (max_attempts, backoff, max_backoff))
    if given and reset:
        raise click.UsageError("give --reset, or --max-attempts, --backoff or --max-backoff, not both")
    if not given and not reset:
        raise click.UsageError("give --max-attempts, --backoff or --max-backoff, or --reset")
    retry = RetryPolicyFields(max_attempts=max_attempts, backoff_ms=backoff, max_backoff_ms=max_backoff)
    info = client.set_group_retry(topic, name, None if reset else retry)
    _answer(output, info)
    output.say(f"\nretries: {'as the topic' if info.retry is None else _retry_text(info.retry)}")


def _answer(output: Output, info: GroupInfo) -> None:
    if output.as_json:
        output.json(info)
    else:
        show_groups(output, [info])


@group.command(epilog=EXIT_CODES)
@_topic
@_name
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@speaks
def forget(client: Client, output: Output, topic: str, name: str, yes: bool) -> None:
    """Forget a group and its progress. It then holds back neither producers nor retention."""
    info = client.group(topic, name)
    if not yes:
        question = f"Forget {name}, which has {counted(info.lag, 'message')} of {topic} left to do?"
        click.confirm(question, abort=True, err=True)
    client.forget_group(topic, name)
    if output.as_json:
        output.json({"forgotten": name, "topic": topic})
    else:
        output.say(f"forgot {name}")
