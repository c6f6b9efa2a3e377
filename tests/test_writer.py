"""One transaction for all that was asked for meanwhile, and nobody's failure is another's."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slipstream.writer import OPERATIONS_MAX, Writer
from tests.client.loop import in_loop


class Story:
    """A writer on a table of numbers, and what its connection was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        self.writer = Writer(self.connect, lambda error: error, 30_000)
        self._lock: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        connection.execute("CREATE TABLE written (number INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE promises (number REFERENCES written DEFERRABLE INITIALLY DEFERRED)")
        connection.set_trace_callback(self.statements.append)
        return connection

    def lock(self) -> None:
        """As another process would: the writer waits for it."""
        self._lock = sqlite3.connect(self.path, isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.execute("ROLLBACK")
            self._lock.close()
            self._lock = None

    @property
    def numbers(self) -> list[int]:
        connection = sqlite3.connect(self.path)
        rows = connection.execute("SELECT number FROM numbers ORDER BY rowid").fetchall()
        connection.close()
        return [number for (number,) in rows]


@asynccontextmanager
async def busy(path: Path) -> AsyncIterator[Story]:
    """With a writer that is in the middle of a transaction."""
    story = Story(path / "numbers.db")
    await story.writer.open()
    story.lock()
    waiting = story.writer.ask(nothing)
    await asyncio.sleep(0)
    try:
        yield story
    finally:
        story.unlock()
        await story.writer.close()
    await waiting


def nothing(cursor: sqlite3.Cursor) -> None:
    """Takes a transaction to do it."""


def add(cursor: sqlite3.Cursor, number: int) -> int:
    cursor.execute("INSERT INTO numbers VALUES (?)", (number,))
    return number


def add_and_fail(cursor: sqlite3.Cursor, number: int) -> int:
    add(cursor, number)
    raise ValueError(f"{number} is not liked")


def promise(cursor: sqlite3.Cursor, number: int) -> int:
    """That the number will be written, which is looked at when the transaction is committed, and is not so."""
    cursor.execute("INSERT INTO promises VALUES (?)", (number,))
    return number


@in_loop
async def test_what_is_asked_for_during_a_transaction_is_one_transaction_and_one_message_to_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    calls: list[object] = []
    call = loop.call_soon_threadsafe

    def count(function: Callable[..., object], *args: object) -> asyncio.Handle:
        calls.append(function)
        return call(function, *args)

    async with busy(tmp_path) as story:
        futures = [story.writer.ask(add, number) for number in range(100)]
        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        story.unlock()
        assert await asyncio.gather(*futures) == list(range(100))
        assert story.statements.count("COMMIT") == 2, "one for the first, one for all others"
        assert len(calls) == 3, "to begin, and twice to commit"
    assert story.numbers == list(range(100))


@in_loop
async def test_a_long_queue_does_not_become_one_transaction(tmp_path: Path) -> None:
    async with busy(tmp_path) as story:
        futures = [story.writer.ask(add, number) for number in range(OPERATIONS_MAX + 1)]
        story.unlock()
        await asyncio.gather(*futures)
        assert story.statements.count("COMMIT") == 3


@in_loop
async def test_what_fails_is_undone_and_the_others_are_done(tmp_path: Path) -> None:
    async with busy(tmp_path) as story:
        futures = [story.writer.ask(operation, number) for number, operation in enumerate([add, add_and_fail, add])]
        story.unlock()
        first, second, third = await asyncio.gather(*futures, return_exceptions=True)
        assert (first, third) == (0, 2)
        assert isinstance(second, ValueError)
    assert story.numbers == [0, 2]


@in_loop
async def test_who_is_cancelled_leaves_what_was_asked_for_and_closing_waits_for_it(tmp_path: Path) -> None:
    async with busy(tmp_path) as story:
        futures = [story.writer.ask(add, number) for number in range(3)]
        futures[1].cancel()
        closing = asyncio.create_task(story.writer.close())
        await asyncio.sleep(0)
        story.unlock()
        await closing
        assert [future.cancelled() or future.result() for future in futures] == [0, True, 2]
    assert story.numbers == [0, 1, 2]


@in_loop
async def test_a_commit_that_fails_is_the_failure_of_all_and_the_next_is_not_harmed(tmp_path: Path) -> None:
    async with busy(tmp_path) as story:
        futures = [story.writer.ask(operation, 1) for operation in (add, promise)]
        story.unlock()
        for failure in await asyncio.gather(*futures, return_exceptions=True):
            assert isinstance(failure, sqlite3.IntegrityError)
        assert await story.writer.ask(add, 2) == 2
    assert story.numbers == [2]


@in_loop
async def test_a_connection_that_cannot_be_made_leaves_no_thread(tmp_path: Path) -> None:
    def refuse() -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open")

    threads = set(threading.enumerate())
    with pytest.raises(ConnectionError, match="told: unable to open"):
        await Writer(refuse, lambda error: ConnectionError(f"told: {error}"), 0).open()
    assert set(threading.enumerate()) <= threads
