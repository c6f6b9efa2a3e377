"""`slipstream produce`, `consume` and `read`: messages in and out."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import msgspec
import rich_click as click
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slipstream.cli.complete import complete_group, complete_topic
from slipstream.cli.interrupt import Interrupt
from slipstream.cli.output import EXIT_CODES, INTERRUPTED, RETRY_FOR_MS, Output, payload_text, speaks
from slipstream.cli.values import Duration, Later, Pair, When, time_text

if TYPE_CHECKING:
    from concurrent.futures import Future

    from slipstream.api import LogMessage, Placed
    from slipstream.client import Client, Message

SHOWN_EVERY = 100
"""Messages: to tell the progress bar of each would cost more than the message does."""


@click.command(epilog=EXIT_CODES)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("values", nargs=-1)
@click.option("-f", "--file", type=click.File("rb"), help="Every line of a file is a message; - for stdin.")
@click.option("-k", "--key", help="Messages with the same key stay in order; those without one go to partition 0.")
@click.option("--key-field", help="Each line is JSON, and this field of it is its key.")
@click.option("--skip-lines", type=click.IntRange(0), default=0, help="Leave out so many lines at the start.")
@click.option("-a", "--attribute", "attributes", multiple=True, type=Pair(), help="An attribute; may be repeated.")
@click.option("-l", "--label", "labels", multiple=True, type=Pair(), help="A label; may be repeated.")
@click.option("--delay", type=Duration(), help="Deliver no earlier than in this time (10s).")
@click.option("--deliver-at", type=Later(), help="Deliver no earlier than at this time (2030-01-31T12:00Z).")
@click.option("--idempotency-key", help="Of a single message: stored once, however often it is sent.")
@click.option("--tenant", help="Tenant of the messages.")
@speaks
def produce(
    client: Client,
    output: Output,
    topic: str,
    values: tuple[str, ...],
    file: IO[bytes] | None,
    key: str | None,
    key_field: str | None,
    skip_lines: int,
    attributes: tuple[tuple[str, str], ...],
    labels: tuple[tuple[str, str], ...],
    delay: int | None,
    deliver_at: dt.datetime | None,
    idempotency_key: str | None,
    tenant: str | None,
) -> None:
    """Store messages: the VALUES, or each line of a file or of stdin.

    \b
    [bold]Examples[/]
      slipstream produce orders '{"item": "lamp"}' --key user:1
      slipstream produce orders --file orders.ndjson
      tail -f events.log | slipstream produce events
    """
    if values and file is not None:
        raise click.UsageError("give VALUES or --file, not both")
    if not values and file is None:
        if sys.stdin is None or sys.stdin.isatty():  # None: it was closed
            raise click.UsageError("give the message, or pipe lines in, or name a --file")
        file = sys.stdin.buffer
    if key is not None and key_field is not None:
        raise click.UsageError("give --key or --key-field, not both")
    if idempotency_key is not None and len(values) != 1:
        raise click.UsageError("--idempotency-key is for one message")
    fields: dict[str, Any] = {
        "key": key,
        "attributes": dict(attributes) or None,
        "labels": dict(labels) or None,
        "delay_ms": delay,
        "deliver_at": deliver_at,
        "idempotency_key": idempotency_key,
        "tenant_id": tenant,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if len(values) == 1:
        placed = client.produce(topic, values[0], **fields)
        if output.as_json:
            output.json(placed)
        else:
            again = ", which was there before" if placed.deduplicated else ""
            output.say(f"stored at {placed.topic or topic}/{placed.partition}/{placed.offset}{again}")
        return
    client.topic(topic)  # that it is missing must be said now, and not when the last line has been read
    lines: Iterable[bytes | str] = values or islice(_lines(file), skip_lines, None)
    count, interrupted = _produce_all(client, output, topic, lines, fields, key_field, file, len(values) or None)
    if interrupted:
        output.note(f"interrupted: {count:,} messages are stored; go on with --skip-lines {skip_lines + count}")
        sys.exit(INTERRUPTED)
    if output.as_json:
        output.json({"topic": topic, "stored": count})
    else:
        output.say(f"stored {count:,} messages in {topic}")


def _lines(file: IO[bytes] | None) -> Iterator[bytes]:
    assert file is not None, "there are values, or a file"
    for line in file:
        stripped = line.rstrip(b"\r\n")
        if stripped:
            yield stripped


def _size(file: IO[bytes] | None) -> int | None:
    """Of a file on a disk; a pipe has none."""
    try:
        status = None if file is None else os.fstat(file.fileno())
    except OSError:  # it is none of the system's
        return None
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None


def _produce_all(
    client: Client,
    output: Output,
    topic: str,
    lines: Iterable[bytes | str],
    fields: dict[str, Any],
    key_field: str | None,
    file: IO[bytes] | None,
    total: int | None,
) -> tuple[int, bool]:
    """How many were stored, and whether somebody pressed Ctrl-C before the end."""
    from slipstream.client import InvalidArgument  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    count = 0
    failures: list[BaseException] = []

    def look(stored: Future[Placed]) -> None:
        """A message that is refused fails alone. Anything else fails for all that follow too, and a pipe may have no
        end at which to say so."""
        error = stored.exception()
        if error is not None and not isinstance(error, InvalidArgument):
            failures.append(error)

    hidden = output.as_json or not sys.stderr.isatty()
    with Progress(*columns, console=output.err, transient=True, disable=hidden) as progress:
        size = _size(file)  # nobody has counted the lines of a file, but its bytes
        task = progress.add_task("", total=total if size is None else size)
        with Interrupt() as interrupt, client.producer(topic) as producer:
            for line in interrupt.among(lines):
                if failures:
                    break  # the producer tells
                if key_field is not None:
                    fields["key"] = _key(line, key_field)
                producer.send(line, **fields).add_done_callback(look)
                count += 1
                if count % SHOWN_EVERY == 0:
                    shown = f"{count:,} messages to {escape(topic)}"
                    done = count if file is None or size is None else file.tell()
                    progress.update(task, completed=done, description=shown)
    return count, interrupt.asked


def _key(line: bytes | str, field: str) -> str:
    try:
        found = msgspec.json.decode(line)[field]
    except (msgspec.DecodeError, LookupError, TypeError):
        raise click.UsageError(f"no field {field!r} in {payload_text(_bytes(line))[:200]}") from None
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _bytes(line: bytes | str) -> bytes:
    return line.encode() if isinstance(line, str) else line


@click.command(epilog=EXIT_CODES)
@click.argument("topic", shell_complete=complete_topic)
@click.option("-g", "--group", shell_complete=complete_group, help="Take the messages of this group.")
@click.option("--ack", is_flag=True, help="Finish each message once it is printed; otherwise it comes again.")
@click.option("-n", "--max", "maximum", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--lease", type=Duration(), default=10_000, help="How long a message is held (10s).")
@click.option("--wait", type=Duration(), help="Stop when nothing came for this long (5s); otherwise go on.")
@speaks
def consume(
    client: Client,
    output: Output,
    topic: str,
    group: str | None,
    ack: bool,
    maximum: int | None,
    lease: int,
    wait: int | None,
) -> None:
    """Print messages as they come.

    Without a group this only looks: it prints what is stored from now on, and takes nothing from anyone. With --group
    it takes the group's messages; with --ack it finishes them too.

    \b
    [bold]Examples[/]
      slipstream consume orders
      slipstream consume orders --group debug --ack --max 10
    """
    if ack and group is None:
        raise click.UsageError("--ack finishes messages of a group: name it with --group")
    try:
        if group is None:
            asyncio.run(_tail(client.url, output, topic, maximum, wait))
        else:
            _take(client, output, topic, group, ack, maximum, lease, wait)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _take(
    client: Client, output: Output, topic: str, group: str, ack: bool, maximum: int | None, lease: int, wait: int | None
) -> None:
    seen = 0
    while maximum is None or seen < maximum:
        batch = 100 if maximum is None else min(100, maximum - seen)
        messages = client.fetch(
            topic, group, max_messages=batch, wait_ms=20_000 if wait is None else wait, lease_ms=lease
        )
        if not messages and wait is not None:
            return
        for message in messages:
            _show_fetched(output, message)
        # Together, and only once all are printed: what was not seen must not be lost.
        if ack and messages:
            client.ack(*messages)
        seen += len(messages)


async def _tail(url: str, output: Output, topic: str, maximum: int | None, wait: int | None) -> None:
    """Every partition from where it ends now, as it comes."""
    from slipstream.client import AsyncClient  # noqa: PLC0415

    found: asyncio.Queue[LogMessage[bytes]] = asyncio.Queue(1_000)
    async with AsyncClient(url, retry_for_ms=RETRY_FOR_MS) as client, asyncio.TaskGroup() as readers:

        async def follow(partition: int, end: int) -> None:
            async for message in client.scan(topic, partition, from_=end, follow=True):
                await found.put(message)

        partitions = (await client.topic(topic)).partitions
        tasks = [readers.create_task(follow(each.partition, each.next_offset)) for each in partitions]
        seen = 0
        with contextlib.suppress(TimeoutError):
            while maximum is None or seen < maximum:
                async with asyncio.timeout(None if wait is None else wait / 1000):
                    message = await found.get()
                _show_logged(output, message)
                seen += 1
        for task in tasks:
            task.cancel()


@click.command(epilog=EXIT_CODES)
@click.argument("topic", shell_complete=complete_topic)
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this one; otherwise all, one after the other.")
@click.option("--from", "from_", type=click.IntRange(0), help="First offset.")
@click.option("--to", type=click.IntRange(0), help="Before this offset.")
@click.option("--since", type=When(), help="Stored then or later (2030-01-31T12:00Z, or 10m ago as 10m).")
@click.option("--until", type=When(), help="Stored before this time.")
@click.option("--last", type=click.IntRange(1), help="The newest so many.")
@click.option("-n", "--max", "maximum", type=click.IntRange(1), help="Stop after so many messages.")
@speaks
def read(
    client: Client, output: Output, topic: str, partition: int | None, maximum: int | None, **selection: Any
) -> None:
    """Print what a topic holds, without a group: nothing is taken from anyone.

    \b
    [bold]Examples[/]
      slipstream read orders --last 10
      slipstream read orders --partition 0 --from 100 --to 200 --json
    """
    given = {name: value for name, value in selection.items() if value is not None}
    partitions = [partition] if partition is not None else [p.partition for p in client.topic(topic).partitions]
    found: Iterator[LogMessage[bytes]]
    found = (message for number in partitions for message in client.scan(topic, number, **given))
    if "last" in given and len(partitions) > 1:
        # Offsets count per topic: the newest of all partitions are those with the highest.
        found = iter(sorted(found, key=lambda message: message.offset)[-given["last"] :])
    for message in islice(found, maximum):
        _show_logged(output, message)


def _show_fetched(output: Output, message: Message) -> None:
    if output.as_json:
        output.json(message._fetched)
        return
    attempt = f" [yellow]attempt {message.attempts}[/]" if message.attempts > 1 else ""
    place = f"{message.partition}/{message.offset}"
    output.out.print(_line(place, message.timestamp_ms, message.key, message.value, attempt), soft_wrap=True)


def _show_logged(output: Output, message: LogMessage[bytes]) -> None:
    if output.as_json:
        output.json(message)
        return
    place = f"{message.partition}/{message.offset}"
    output.out.print(_line(place, message.timestamp_ms, message.key, message.value, ""), soft_wrap=True)


def _line(place: str, timestamp_ms: int, key: bytes, value: bytes, attempt: str) -> str:
    shown_key = f" [cyan]{escape(payload_text(key))}[/]" if key else ""
    return f"[dim]{place} {time_text(timestamp_ms)}[/]{attempt}{shown_key} {escape(payload_text(value))}"
