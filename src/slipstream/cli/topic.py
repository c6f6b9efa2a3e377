"""`slipstream topic`: create, list, show, change and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from slipstream.cli.complete import complete_topic
from slipstream.cli.output import EXIT_CODES, Output, speaks, warn_if
from slipstream.cli.values import Duration, Size, size_text, time_text
from slipstream.durations import duration_text
from slipstream.plurals import counted

if TYPE_CHECKING:
    from slipstream.api import GroupInfo, TopicConfigFields, TopicInfo
    from slipstream.client import Client


@click.group()
def topic() -> None:
    """Create, list, show, change and delete topics."""


def _config_options(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--retention", type=Duration(), help="How long messages are kept (7d); 0 for ever."),
            click.option("--retention-bytes", type=Size(), help="How many bytes per partition are kept (10g)."),
            click.option("--max-in-flight", type=click.IntRange(0), help="Unfinished deliveries per partition."),
            click.option("--max-waiting-messages", type=click.IntRange(0), help="Waiting messages before a 429."),
            click.option("--max-waiting-bytes", type=Size(), help="The same in bytes."),
            click.option("--retry-max-attempts", type=click.IntRange(0), help="Attempts before it is dead; 0: no end."),
            click.option("--retry-backoff", type=Duration(), help="First pause before a retry (100ms); it doubles."),
            click.option("--retry-max-backoff", type=Duration(), help="Longest pause (1h)."),
            click.option("--hold-unfinished/--no-hold-unfinished", default=None, help="Keep what is not finished."),
            click.option("--expiry", type=Duration(), help="Delete it after this time without use (30d); 0: never."),
            click.option("--dead-letters/--no-dead-letters", default=None, help="Keep what has had its attempts."),
        ]
    ):
        command = option(command)
    return command


def _config(given: dict[str, Any]) -> TopicConfigFields:
    from slipstream.api import RetryPolicyFields, TopicConfigFields  # noqa: PLC0415

    retry = (given["retry_max_attempts"], given["retry_backoff"], given["retry_max_backoff"])
    policy = None
    if any(value is not None for value in retry):
        policy = RetryPolicyFields(max_attempts=retry[0], backoff_ms=retry[1], max_backoff_ms=retry[2])
    return TopicConfigFields(
        max_in_flight=given["max_in_flight"],
        max_waiting_messages=given["max_waiting_messages"],
        max_waiting_bytes=given["max_waiting_bytes"],
        retry=policy,
        retention_ms=given["retention"],
        retention_bytes=given["retention_bytes"],
        hold_unfinished=given["hold_unfinished"],
        dead_letters=given["dead_letters"],
        expiry_ms=given["expiry"],
    )


@topic.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(1), default=1, show_default=True, help="How many partitions.")
@_config_options
@speaks
def create(client: Client, output: Output, name: str, partitions: int, **given: Any) -> None:
    """Create a topic. One that exists is left as it is."""
    answer = client.create_topic(name, partitions, config=_config(given))
    if output.as_json:
        output.json(answer)
    elif answer.created:
        output.say(f"created {name} with {counted(partitions, 'partition')}")
    else:
        there = counted(len(answer.topic.partitions), "partition")
        output.say(f"{name} exists already, with {there}, and was left as it is")


@topic.command("list", epilog=EXIT_CODES)
@speaks
def list_topics(client: Client, output: Output) -> None:
    """List all topics."""
    topics = client.topics()
    if output.as_json:
        output.json(topics)
    elif not topics:
        output.say("no topics yet: create one with  slipstream topic create NAME")
    else:
        output.table(
            ["TOPIC", ">PARTITIONS", ">MESSAGES", ">SIZE", ">GROUPS", ">LAG"],
            [
                (
                    t.name,
                    t.partitions,
                    f"{t.messages:,}",
                    size_text(t.bytes),
                    t.groups,
                    warn_if(t.lag > 0, f"{t.lag:,}"),
                )
                for t in topics
            ],
        )


@topic.command(epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_topic)
@speaks
def show(client: Client, output: Output, name: str) -> None:
    """Show a topic: its partitions, groups and configuration."""
    info = client.topic(name)
    if output.as_json:
        output.json(info)
        return
    output.say(f"[bold]{info.name}[/]  created {time_text(info.created_ms)}  id {info.id}\n")
    output.table(
        [">PARTITION", ">FIRST OFFSET", ">NEXT OFFSET", ">MESSAGES", ">SIZE"],
        [(p.partition, p.first_offset, p.next_offset, f"{p.messages:,}", size_text(p.bytes)) for p in info.partitions],
    )
    output.say("")
    if info.groups:
        show_groups(output, info.groups)
    else:
        output.say("no group has read it yet")
    output.say("")
    output.table(["CONFIGURATION", "", ""], _config_rows(info))


def show_groups(output: Output, groups: list[GroupInfo]) -> None:
    output.table(
        [
            "GROUP",
            ">LAG",
            ">IN FLIGHT",
            ">RETRYING",
            ">DELAYED",
            ">OLDEST",
            ">CONSUMERS",
            "LAST USED",
            ">LOST",
            "STATE",
        ],
        [
            (
                g.group,
                warn_if(g.lag > 0, f"{g.lag:,}"),
                f"{g.in_flight:,}",
                warn_if(g.retrying > 0, f"{g.retrying:,}"),
                f"{g.delayed:,}",
                duration_text(g.oldest_unfinished_age_ms) if g.oldest_unfinished_age_ms else "-",
                g.consumers,
                "now" if g.consumers else f"{duration_text(g.idle_ms)} ago",
                warn_if(g.lost > 0, f"{g.lost:,}"),
                warn_if(bool(_state(g)), _state(g)),
            )
            for g in groups
        ],
    )


def _state(group: GroupInfo) -> str:
    if any(partition.unreadable for partition in group.partitions):
        return "stands still: its log cannot be read"
    if group.paused:
        return "paused"
    return f"{group.parked} of {counted(group.consumers, 'consumer')} parked" if group.parked else ""


def _config_rows(info: TopicInfo) -> list[tuple[str, str, str]]:
    own = msgspec.to_builtins(info.overrides)
    return [
        (name, _shown(name, value), "set for this topic" if name in own else "")
        for name, value in msgspec.to_builtins(info.config).items()
    ]


def _shown(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{part.removesuffix('_ms')} {_shown(part, each)}" for part, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == 0:
        return {"expiry_ms": "never"}.get(name, "none" if "backoff" in name else "no limit")
    if name.endswith("_ms"):
        return duration_text(value)
    return size_text(value) if name.endswith("_bytes") else f"{value:,}"


@topic.command(epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_topic)
@click.option("-p", "--partitions", type=click.IntRange(1), help="More than there are; keys may move.")
@click.option("--reset", multiple=True, help="Follow the server's setting again; the name as in `topic show`.")
@_config_options
@speaks
def change(
    client: Client, output: Output, name: str, partitions: int | None, reset: tuple[str, ...], **given: Any
) -> None:
    """Change a topic's configuration. What is not given stays as it is."""
    info = client.change_topic(name, config=_config(given), reset=reset, partitions=partitions)
    if output.as_json:
        output.json(info)
    else:
        if partitions is not None:
            output.say(f"{name} has {counted(len(info.partitions), 'partition')}\n")
        output.table(["CONFIGURATION", "", ""], _config_rows(info))


@topic.command(epilog=EXIT_CODES)
@click.argument("name", shell_complete=complete_topic)
@click.option("--confirm", metavar="NAME", help="The name once more, instead of being asked for it.")
@speaks
def delete(client: Client, output: Output, name: str, confirm: str | None) -> None:
    """Delete a topic, its messages and its groups. Asks for the name a second time.

    Its dead letters stay: they are the topic dlq.NAME.
    """
    info = client.topic(name)
    messages = sum(partition.messages for partition in info.partitions)
    if confirm is None:
        lost = f"{counted(messages, 'message')} and {counted(len(info.groups), 'group')}"
        output.note(f"This deletes {lost} of [bold]{name}[/] for good.")
        confirm = click.prompt("Type the name once more to delete it", err=True)
    if confirm != name:
        raise click.UsageError(f"{confirm!r} is not {name!r}: nothing was deleted")
    client.delete_topic(name)
    if output.as_json:
        output.json({"deleted": name, "messages": messages})
    else:
        output.say(f"deleted {name}")
