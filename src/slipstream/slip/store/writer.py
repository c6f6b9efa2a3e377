"""The one thread that writes to a store's file: one transaction, and one sync, for all that was asked for meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OPERATIONS_MAX = 1024
"""In one transaction, so that a long queue does not become one without end."""

_Operation: TypeAlias = Callable[..., Any]
_Asked: TypeAlias = tuple["asyncio.Future[Any]", _Operation, tuple[Any, ...]]
_Outcome: TypeAlias = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    """Carries out operations in the order they were asked for. An operation is a function of the database alone: it is
    called again if the transaction that it was part of was undone because of another."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], translate: Callable[[BaseException], BaseException]
    ) -> None:
        """`connect` is called in the thread, which keeps the connection to itself; `translate` says what whoever asked
        is to be told of an error."""
        self._connect = connect
        self._translate = translate
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="slipstream-slip-store", daemon=True)

    async def open(self) -> None:
        """Raises what `translate` makes of an error of `connect`; the thread has ended then."""
        self._thread.start()
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            raise

    def ask(
        self, operation: Callable[Concatenate[sqlite3.Cursor, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """What the operation returned, once that is on disk. Who is cancelled meanwhile leaves it asked for."""
        assert not kwargs, "operations take their arguments by position"
        future: asyncio.Future[T] = self._loop.create_future()
        self._asked.put((future, operation, args))
        return future

    async def close(self) -> None:
        """Returns when everything that was asked for is done and the thread has ended."""
        self._asked.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - carried to whoever opens
            self._settle([(self._opened, None, self._told(error))])
        else:
            self._settle([(self._opened, None, None)])
            with contextlib.closing(connection):
                self._work(connection)
        finally:
            self._settle([(self._ended, None, None)])

    def _work(self, connection: sqlite3.Connection) -> None:
        cursor = connection.cursor()
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                self._settle(self._write(cursor, batch))

    def _next_batch(self) -> tuple[list[_Asked], bool]:
        """Waits for the first. False if there will be no more."""
        batch: list[_Asked] = []
        asked = self._asked.get()
        while asked is not None:
            batch.append(asked)
            if len(batch) == OPERATIONS_MAX:
                return batch, True
            try:
                asked = self._asked.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _write(self, cursor: sqlite3.Cursor, batch: list[_Asked]) -> list[_Outcome]:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return self._failed(batch, error)  # another process has it locked for too long
        outcomes: list[_Outcome] = []
        try:
            for future, operation, args in batch:
                outcomes.append((future, operation(cursor, *args), None))
        except Exception as error:  # noqa: BLE001 - carried to whoever asked for it
            _roll_back(cursor)
            if len(batch) == 1:
                return self._failed(batch, error)
            # One of them cannot be done, and may have been done in part. On its own, it harms nobody else.
            return [outcome for asked in batch for outcome in self._write(cursor, [asked])]
        try:
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(cursor)
            return self._failed(batch, error)
        return outcomes

    def _failed(self, batch: list[_Asked], error: BaseException) -> list[_Outcome]:
        return [(future, None, self._told(error)) for future, _, _ in batch]

    def _told(self, error: BaseException) -> BaseException:
        told = self._translate(error)
        if told is not error:
            told.__cause__ = error
        return told

    def _settle(self, outcomes: list[_Outcome]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(_settle, outcomes)


def _roll_back(cursor: sqlite3.Cursor) -> None:
    """A full disk and the like have undone the transaction already."""
    if cursor.connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            cursor.execute("ROLLBACK")


def _settle(outcomes: list[_Outcome]) -> None:
    """In the loop, once for a whole transaction: waking the loop costs more than what it is told."""
    for future, result, error in outcomes:
        if future.done():
            continue  # cancelled: nobody waits any longer
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
