"""Writes what was composed to its topics, once, from wherever the last attempt has come to.

Every commit carries how many messages of the replay are stored with it. The broker remembers that number in the same
step, so whoever is killed, whenever it is, the next one asks it and goes on behind. How much a commit holds may be
another each time: the order of the messages is fixed, and their number says where in it we are.
"""

from __future__ import annotations

import functools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.replay.errors import ReplayBusy, ReplayForgotten
from slipstream.pipeline.replay.plan import Reached

if TYPE_CHECKING:
    import pyarrow as pa

    from slipstream.client import Client
    from slipstream.pipeline.replay.folder import Replay

log = logging.getLogger(__name__)

T = TypeVar("T")

COMMITS_PER_S = 4
"""With a rate: so that it is a stream, and not a heap every now and then."""
STAGINGS = 5
"""Of one commit, before we give up: each time the server has forgotten what was staged, because it has started anew."""
WAIT_S_MAX = 60.0


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

    def stored(self) -> int:
        """How many messages of the replay are stored. Raises ReplayForgotten."""
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
        """To the end, or until `stop`; tells after each commit how many messages are stored, and says so at the end."""
        begun = at = self.stored()
        since = time.monotonic()
        told(at)
        for end, rows in slices(self._replay, at, self._messages, self._bytes):
            if not self._await_turn(since, at - begun):
                return at
            self._commit(end, rows)
            at = end
            self._replay.reach(Reached(at))
            told(at)
        return at

    def stop(self) -> None:
        """From any thread or signal handler: after the commit at hand."""
        self._stop.set()

    def _await_turn(self, since: float, sent: int) -> bool:
        """False: it is to stop."""
        if self._rate is None:
            return not self._stop.is_set()
        return not self._stop.wait(max(0.0, since + sent / self._rate - time.monotonic()))

    def _commit(self, sequence: int, rows: pa.RecordBatch) -> None:
        from slipstream.client import Conflict  # noqa: PLC0415 - --help needs none of it

        problem = ""
        for _ in range(STAGINGS):
            staged = self._stage(sequence, rows)
            try:
                is_new = self._patiently(functools.partial(self._client.commit, self._writer, sequence, staged))
            except Conflict as error:
                problem = str(error)
            else:
                if not is_new:
                    self._check_alone(sequence)
                return
        raise PipelineError(
            f"the server has forgotten {STAGINGS} times what it was given before it could be committed: {problem}. "
            "Nothing of it is stored; start the replay again when the server stays up, and it goes on"
        )

    def _stage(self, sequence: int, rows: pa.RecordBatch) -> list[str]:
        from slipstream.pipeline.source.outgoing import requests_of  # noqa: PLC0415

        stage = functools.partial(self._client.stage, writer=self._writer, sequence=sequence, attempt=self._attempt)
        return [
            self._patiently(functools.partial(stage, topic, messages)).staged
            for topic, messages in requests_of([rows], None)
        ]

    def _patiently(self, call: Callable[[], T]) -> T:
        """A topic that is full is no reason to give up: its consumers are at work, and we have time."""
        from slipstream.client import Overloaded  # noqa: PLC0415

        while True:
            try:
                return call()
            except Overloaded as error:
                log.warning("the server asks to wait, and the replay does: %s", error)
                if self._stop.wait(min(error.retry_after_ms / 1000, WAIT_S_MAX)):
                    raise

    def _check_alone(self, sequence: int) -> None:
        """A commit that was made before is one whose answer was lost, or somebody else's."""
        known = self._client.writer_sequence(self._writer)
        if known != sequence:
            raise ReplayBusy(f"another process is at replay {self._replay.plan.id}: {known} messages of it are stored")


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
