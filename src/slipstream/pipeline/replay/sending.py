"""Writes what was composed to its topics, once, from wherever the last attempt has come to.

Every commit carries how many messages of the replay are stored with it. The broker remembers that number in the same
step, so whoever is killed, whenever it is, the next one asks it and goes on behind. How much a commit holds may be
another each time: the order of the messages is fixed, and their number says where in it we are.

A message that the server will never take is passed over: a commit without messages says that it is behind us, so it
counts as if it were stored, and nobody is held up by it.
"""

from __future__ import annotations

import functools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.replay.composing import REPLAYED_FROM
from slipstream.pipeline.replay.errors import ReplayBusy, ReplayForgotten
from slipstream.pipeline.replay.plan import PassedOver, Reached

if TYPE_CHECKING:
    import pyarrow as pa

    from slipstream.api import ProduceMessage
    from slipstream.client import Client
    from slipstream.pipeline.replay.folder import Replay
    from slipstream.pipeline.source.outgoing import Request

log = logging.getLogger(__name__)

T = TypeVar("T")

COMMITS_PER_S = 4
"""With a rate: so that it is a stream, and not a heap every now and then."""
STAGINGS = 5
"""Of one commit, before we give up: each time the server has forgotten what was staged, because it has started anew."""
WAIT_S_MAX = 60.0
AWAY_S_MAX = 30.0
"""For so long a server that does not answer is asked again."""
AWAY_PAUSE_S = 1.0
"""In between. The client has paused for itself before it gave up."""
OF_THE_MESSAGE = {0, 400, 413}
"""Status of an answer that may be about the messages of a request, and says that another time will not help; 0: the
request could not even be made. Any other is about who asks, or where."""


class Sender:
    """Example:
    Sender(client, replay, commit_messages=5_000, commit_bytes=8 << 20).send(print)
    """

    def __init__(
        self, client: Client, replay: Replay, *, commit_messages: int, commit_bytes: int, rate: float | None = None
    ) -> None:
        self._client = client
        self._replay = replay
        self._writer = replay.plan.writer
        self._messages = commit_messages if rate is None else max(1, min(commit_messages, int(rate / COMMITS_PER_S)))
        self._bytes = commit_bytes
        self._rate = rate
        self._attempt = secrets.token_hex(8)
        self._stop = threading.Event()

    def reached(self) -> int:
        """How many messages of the replay are behind us: stored or passed over. Raises ReplayForgotten."""
        known = self._client.writer_sequence(self._writer) or 0
        noted = self._replay.reached.rows
        if known < noted:
            raise ReplayForgotten(
                f"{noted:,} messages of replay {self._replay.plan.id} were written, and the server knows "
                f"of {known:,}: it is another one, was set back, or has forgotten (writer_ttl_ms). Name the right one; "
                f"or remove {self._replay.path}, and all of it is sent to this one"
            )
        return known

    def send(self, told: Callable[[int], None] = lambda _: None) -> int:
        """To the end, or until `stop`; tells after each commit how many messages are behind us, and says so at the
        end."""
        begun = at = self.reached()
        self._replay.take_up(at)
        since = time.monotonic()
        told(at)
        try:
            for end, rows in slices(self._replay, at, self._messages, self._bytes):
                self._await_turn(since, at - begun)
                for at in self._write(end, rows):
                    self._replay.reach(Reached(at))
                    told(at)
        except _Stopped:
            log.debug("replay %s was stopped at %d", self._replay.plan.id, at)
        return at

    def stop(self) -> None:
        """From any thread or signal handler: after the commit at hand."""
        self._stop.set()

    def _await_turn(self, since: float, sent: int) -> None:
        self._wait(0.0 if self._rate is None else since + sent / self._rate - time.monotonic())

    def _wait(self, wait_s: float = 0.0) -> None:
        if self._stop.wait(max(0.0, wait_s)):
            raise _Stopped

    def _write(self, end: int, rows: pa.RecordBatch) -> Iterator[int]:
        """Says after each commit how far it is. What is refused is halved, until what is refused by itself is alone;
        or until it is taken, where only all of it together was too much."""
        self._wait()
        refusal = self._refusal(end, rows)
        if refusal is not None and rows.num_rows > 1:
            middle = rows.num_rows // 2
            yield from self._write(end - rows.num_rows + middle, rows.slice(0, middle))
            yield from self._write(end, rows.slice(middle))
            return
        if refusal is not None:
            self._pass_over(PassedOver(end, _place(end, rows), refusal))
        yield end

    def _refusal(self, sequence: int, rows: pa.RecordBatch) -> str | None:
        """Why these rows will never be taken together; None: they are stored."""
        from slipstream.client import InvalidArgument  # noqa: PLC0415 - --help needs none of it
        from slipstream.pipeline.source.errors import ConnectorError  # noqa: PLC0415

        try:
            self._commit(sequence, rows)
        except (InvalidArgument, ConnectorError) as error:
            if isinstance(error, InvalidArgument) and error.status not in OF_THE_MESSAGE:
                raise
            # What was staged would keep the room that its halves need.
            self._patiently(functools.partial(self._client.unstage, self._writer, sequence))
            return str(error)
        return None

    def _pass_over(self, message: PassedOver) -> None:
        """Where not even a commit without messages is taken, it was not for the message, and that is raised."""
        self._replay.pass_over(message)
        self._commit_staged(message.number, [])
        log.warning(
            "the server does not take a message, and the replay passes over %s: %s", message.place, message.reason
        )

    def _commit(self, sequence: int, rows: pa.RecordBatch) -> None:
        from slipstream.client import Conflict  # noqa: PLC0415 - --help needs none of it

        problem = ""
        for _ in range(STAGINGS):
            staged = self._stage(sequence, rows)
            try:
                self._commit_staged(sequence, staged)
            except Conflict as error:
                problem = str(error)
            else:
                return
        raise PipelineError(
            f"the server has forgotten {STAGINGS} times what it was given before it could be committed: {problem}. "
            "Nothing of it is stored; start the replay again when the server stays up, and it goes on"
        )

    def _stage(self, sequence: int, rows: pa.RecordBatch) -> list[str]:
        stage = functools.partial(self._client.stage, writer=self._writer, sequence=sequence, attempt=self._attempt)
        return [
            self._patiently(functools.partial(stage, topic, messages)).staged
            for topic, messages in self._requests(rows)
        ]

    def _requests(self, rows: pa.RecordBatch) -> list[Request]:
        """Without a partition_override that the topic does not have any more: the key says where instead. Looked at
        for each commit: a topic may be made anew while we are at it."""
        from slipstream.pipeline.source.outgoing import requests_of  # noqa: PLC0415

        requests = list(requests_of([rows], None))
        topics = sorted({topic for topic, messages in requests if any(map(_override, messages))})
        if not topics:  # 0 is there in every topic
            return requests
        found = self._patiently(functools.partial(self._client.offsets, topics)).topics
        partitions = {topic.name: len(topic.partitions) for topic in found}
        return [
            (topic, [_fitting(each, partitions[topic]) for each in messages] if topic in partitions else messages)
            for topic, messages in requests
        ]

    def _commit_staged(self, sequence: int, staged: list[str]) -> None:
        if not self._patiently(functools.partial(self._client.commit, self._writer, sequence, staged)):
            self._check_alone(sequence)

    def _patiently(self, call: Callable[[], T]) -> T:
        """A topic that is full is no reason to give up: its consumers are at work, and we have time. Nor is a server
        that starts anew. Whoever waits hears `stop`, which the client does not: give it a short patience of its own."""
        from slipstream.client import ConnectionFailed, Overloaded, Unavailable  # noqa: PLC0415

        away_since: float | None = None
        while True:
            try:
                return call()
            except Overloaded as error:
                self._wait()
                log.warning("the server asks to wait, and the replay does: %s", error)
                away_since = None
                self._wait(min(error.retry_after_ms / 1000, WAIT_S_MAX))
            except (ConnectionFailed, Unavailable):
                self._wait()
                now = time.monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since > AWAY_S_MAX:
                    raise
                self._wait(AWAY_PAUSE_S)

    def _check_alone(self, sequence: int) -> None:
        """A commit that was made before is one whose answer was lost, or somebody else's."""
        known = self._patiently(functools.partial(self._client.writer_sequence, self._writer))
        if known != sequence:
            raise ReplayBusy(f"another process is at replay {self._replay.plan.id}: {known} messages of it are stored")


class _Stopped(Exception):
    """Somebody has called `stop`, and what was at hand is left as it was."""


def _place(number: int, rows: pa.RecordBatch) -> str:
    """Where the only one of these rows was before."""
    envelope: dict[str, Any] = rows.column("envelope")[0].as_py() or {}
    return dict(envelope.get("labels") or ()).get(REPLAYED_FROM) or f"message {number}"


def _override(message: ProduceMessage[bytes]) -> int | None:
    return None if message.envelope is None else message.envelope.partition_override


def _fitting(message: ProduceMessage[bytes], partitions: int) -> ProduceMessage[bytes]:
    override = _override(message)
    if override is None or 0 <= override < partitions:
        return message
    assert message.envelope is not None
    without = msgspec.structs.replace(message.envelope, partition_override=None)
    return msgspec.structs.replace(message, envelope=without)


def slices(replay: Replay, start: int, rows_max: int, bytes_max: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows from `start` on, a piece at a time, each with the number of rows up to its end."""
    at = 0
    for path, rows in replay.parts():
        if at + rows > start:
            yield from _slices_of(path, at, max(start, at), rows_max, bytes_max)
        at += rows


def _slices_of(path: Path, at: int, start: int, rows_max: int, bytes_max: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(path) as file:
        for number in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if at + rows > start:
                (group,) = file.read_row_group(number).combine_chunks().to_batches()
                behind = max(0, start - at)
                yield from _pieces(group.slice(behind), at + behind, rows_max, bytes_max)
            at += rows


def _pieces(rows: pa.RecordBatch, at: int, rows_max: int, bytes_max: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Halved until each is small enough, or a single message."""
    count = rows.num_rows
    if count > rows_max:
        for first in range(0, count, rows_max):
            yield from _pieces(rows.slice(first, rows_max), at + first, rows_max, bytes_max)
    elif count > 1 and rows.nbytes > bytes_max:
        middle = count // 2
        yield from _pieces(rows.slice(0, middle), at, rows_max, bytes_max)
        yield from _pieces(rows.slice(middle), at + middle, rows_max, bytes_max)
    elif count:
        yield at + count, rows
