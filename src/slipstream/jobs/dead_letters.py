"""Dead letters: found by job, code, tenant or time, and replayed or discarded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from slipstream.bus import Bus
from slipstream.jobs.clock import now_ms
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.ledger import Ledger, Rank
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, check_task, decode, encode, to_json
from slipstream.jobs.publishing import attributes_of, message_id
from slipstream.jobs.streams import Streams


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which: what is empty does not matter."""

    job_id: str = ""
    resource_id: str = ""
    code: str = ""
    """Or the beginning of one, such as DOWNLOAD_."""
    tenant: str = ""
    job_type: str = ""
    since_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    until_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    """By when they failed; 0: no end."""
    dealt_with: bool = False
    """Those too that were replayed or discarded, and those whose resource is stored by now."""

    def takes(self, letter: DeadLetterTask) -> bool:
        task = letter.task
        return (
            self.job_id in {"", task.job_id}
            and self.resource_id in {"", task.resource_id}
            and letter.failure_code.startswith(self.code)
            and self.tenant in {"", task.tenant}
            and self.job_type in {"", task.job_type}
            and self.since_ms <= letter.failed_at_ms
            and (not self.until_ms or letter.failed_at_ms < self.until_ms)
        )


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as operators see it."""

    partition: int
    offset: int
    job_id: str
    resource_id: str
    job_type: str
    tenant: str
    url: str
    code: str
    message: str
    attempts: int
    failed_at_ms: int
    task: msgspec.Raw
    """All of it, in the JSON form of its message; bytes are in base64."""
    became: str
    """`replayed`, `discarded`, `stored` if its resource is by now, or nothing."""


class Dealt(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    letters: list[Letter]
    skipped: int
    """Of those that were selected: older ones of a resource that has a newer, and what cannot be read as a task."""
    dry_run: bool


class DeadLetters:
    def __init__(self, bus: Bus, ledger: Ledger, streams: Streams) -> None:
        self._bus = bus
        self._ledger = ledger
        self._streams = streams

    async def find(self, selection: Selection) -> AsyncIterator[Letter]:
        """In the order of the stream, partition by partition. Raises Unsupported where the engine keeps no log."""
        async for letter, _ in self._find(selection):
            yield letter

    async def replay(self, selection: Selection, *, dry_run: bool = False) -> Dealt:
        """Publishes their tasks again, with attempt 0; of each resource once. Where two are asked to replay the same,
        or this is asked again after a crash, a task may be done twice, and counts once."""
        newest: dict[tuple[str, str], tuple[Letter, DownloadTask]] = {}
        places: dict[tuple[str, str], list[tuple[int, int]]] = {}
        skipped = 0
        async for letter, task in self._find(selection):
            try:
                check_task(task)
            except MalformedMessage:
                skipped += 1
                continue
            places.setdefault((task.job_id, task.resource_id), []).append((letter.partition, letter.offset))
            before = newest.get((task.job_id, task.resource_id))
            skipped += before is not None
            if before is None or before[0].failed_at_ms <= letter.failed_at_ms:
                newest[task.job_id, task.resource_id] = (letter, task)
        chosen = list(newest.values())
        if not dry_run:
            for letter, task in chosen:
                await self._publish(letter, task)
                # The older ones with it: they are of the same resource, and nobody is to replay them after it.
                await self._ledger.dealt_with(places[task.job_id, task.resource_id], "replayed")
        return Dealt(letters=[letter for letter, _ in chosen], skipped=skipped, dry_run=dry_run)

    async def discard(self, selection: Selection, *, dry_run: bool = False) -> Dealt:
        """Nobody is shown them any more, though the stream keeps them for its time."""
        letters = [letter async for letter in self.find(selection)]
        if not dry_run and letters:
            await self._ledger.dealt_with([(each.partition, each.offset) for each in letters], "discarded")
        return Dealt(letters=letters, skipped=0, dry_run=dry_run)

    async def _publish(self, letter: Letter, task: DownloadTask) -> None:
        task.attempt = 0
        place = (str(letter.partition), str(letter.offset), str(now_ms() // 1000))
        await self._bus.publish(
            self._streams.tasks.topic,
            encode(task),
            attributes_of("DownloadTask", task.job_id, task.trace_id),
            task.job_id,
            message_id=message_id("replay", *place),
        )

    async def _find(self, selection: Selection) -> AsyncIterator[tuple[Letter, DownloadTask]]:
        topic = self._streams.dlq.topic
        info = await self._bus.topic(topic)
        for partition in range(info.partitions if info is not None else 0):
            async with contextlib.aclosing(self._bus.read(topic, partition)) as messages:
                async for stored in messages:
                    try:
                        dead = decode(DeadLetterTask, stored.data)
                    except MalformedMessage:
                        continue  # somebody else's, in our stream
                    if not selection.takes(dead):
                        continue
                    letter = self._letter(dead, partition, stored.offset)
                    if selection.dealt_with or not letter.became:
                        yield letter, dead.task

    def _letter(self, dead: DeadLetterTask, partition: int, offset: int) -> Letter:
        task = dead.task
        became = self._ledger.became(partition, offset)
        if not became and self._ledger.rank(task.job_id, task.resource_id) == Rank.COMPLETED:
            became = "stored"
        return Letter(
            partition=partition,
            offset=offset,
            job_id=task.job_id,
            resource_id=task.resource_id,
            job_type=task.job_type,
            tenant=task.tenant,
            url=task.url,
            code=dead.failure_code,
            message=dead.failure_message,
            attempts=dead.attempts,
            failed_at_ms=dead.failed_at_ms,
            task=msgspec.Raw(to_json(task).encode()),
            became=became,
        )
