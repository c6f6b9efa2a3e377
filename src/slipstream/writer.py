"""Writes to a file of SQLite: one transaction and one sync for all that was asked for while the last was synced."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OPERATIONS_MAX = 256
"""In one transaction: the loop has other things to do."""

TOGETHER: dict[Callable[..., Any], Callable[[sqlite3.Cursor, list[tuple[Any, ...]]], list[Any] | None]] = {}
"""Operations that can nearly always be carried out many at once, and how: in one statement. None is returned if not."""

_Asked: TypeAlias = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
_Job: TypeAlias = tuple[Callable[[], None], Callable[[BaseException | None], None]]


class Writer:
    """Carries out operations in the order they were asked for. An operation is a function of the database alone: it is
    called again if the transaction that it was part of was undone because of another.

    A thread has to get Python's lock back after each statement, and with a busy loop that takes milliseconds: 6 of 9
    seconds in a bench of routing, with a statement for each operation. So it is given what can be done in a single one
    (`TOGETHER`), commit included, which is nearly all. The statements of other operations are run in the loop, where
    each takes microseconds, and only what waits for the disk, or for the lock of another process, in the thread.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        translate: Callable[[BaseException], BaseException],
        busy_ms: int,
    ) -> None:
        """`connect` is called in the thread; `translate` says what whoever asked is to be told of an error. After
        `busy_ms` another process has kept the file for too long."""
        self._connect = connect
        self._busy_ms = busy_ms
        self._translate = translate
        self._loop = asyncio.get_running_loop()
        self._asked: deque[_Asked] = deque()
        self._alone: deque[_Asked] = deque()
        """Of a transaction that failed: each is tried on its own, before all others."""
        self._is_at_work = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._cursor: sqlite3.Cursor | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="slipstream-sqlite", daemon=True)

    async def open(self) -> None:
        """Raises what `translate` makes of an error of `connect`; the thread has ended then."""
        self._thread.start()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((self._open, lambda error: _settle_one(opened, None, error and self._told(error))))
        try:
            await asyncio.shield(opened)
        except BaseException:
            await self.close()
            raise

    def _open(self) -> None:
        self._cursor = self._connect().cursor()
        self._cursor.execute("PRAGMA busy_timeout = 0")

    def ask(
        self, operation: Callable[Concatenate[sqlite3.Cursor, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """What the operation returned, once that is on disk. Who is cancelled meanwhile leaves it asked for."""
        assert not kwargs, "operations take their arguments by position"
        future: asyncio.Future[T] = self._loop.create_future()
        self._asked.append((future, operation, args))
        if not self._is_at_work:
            self._is_at_work = True
            self._idle.clear()
            self._loop.call_soon(self._begin)  # with what others ask for in the same turn of the loop
        return future

    async def close(self) -> None:
        """Returns when everything that was asked for is done and the thread has ended."""
        await self._idle.wait()
        self._jobs.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()  # it has nothing left to do
        if self._cursor is not None:
            self._cursor.connection.close()
            self._cursor = None

    # In the loop

    def _begin(self) -> None:
        batch = self._next_batch()
        if not batch:
            self._is_at_work = False
            self._idle.set()
            return
        operation = batch[0][1]
        if operation in TOGETHER and all(other is operation for _, other, _ in batch):
            results: list[Any] = []
            self._jobs.put((lambda: self._do_together(batch, results), lambda error: self._done(batch, results, error)))
            return
        self._begin_one_by_one(batch)

    def _begin_one_by_one(self, batch: list[_Asked]) -> None:
        assert self._cursor is not None
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._jobs.put((self._begin_patiently, lambda error: self._begun(batch, error)))
        else:
            self._begun(batch, None)

    def _next_batch(self) -> list[_Asked]:
        if self._alone:
            return [self._alone.popleft()]
        return [self._asked.popleft() for _ in range(min(len(self._asked), OPERATIONS_MAX))]

    def _done(self, batch: list[_Asked], results: list[Any], error: BaseException | None) -> None:
        """What went wrong goes wrong again one by one, for whom it belongs to: nobody else is told of it."""
        if error is None and results:
            self._end(batch, results, None)
        else:
            self._begin_one_by_one(batch)

    def _begun(self, batch: list[_Asked], error: BaseException | None) -> None:
        if error is not None:
            self._end(batch, [], error)  # another process has it locked for too long
            return
        assert self._cursor is not None
        results: list[Any] = []
        try:
            for _, operation, args in batch:
                results.append(operation(self._cursor, *args))
        except Exception as failure:  # noqa: BLE001 - carried to whoever asked for it
            _roll_back(self._cursor)
            if len(batch) == 1:
                self._end(batch, [], failure)
                return
            # One of them cannot be done, and may have been done in part. On its own, it harms nobody else.
            self._alone.extend(batch)
            self._begin()
            return
        self._jobs.put((self._commit, lambda error: self._end(batch, results, error)))

    def _end(self, batch: list[_Asked], results: list[Any], error: BaseException | None) -> None:
        told = None if error is None else self._told(error)
        for index, (future, _, _) in enumerate(batch):
            _settle_one(future, results[index] if told is None else None, told)
        # Not at once: those who were waiting may ask for more.
        self._loop.call_soon(self._begin)

    def _told(self, error: BaseException) -> BaseException:
        told = self._translate(error)
        if told is not error:
            told.__cause__ = error
        return told

    # In the thread, while the loop leaves the connection alone

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, then = job
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits for it
                failure = error
            self._tell(then, failure)
        self._tell(lambda _: _settle_one(self._ended, None, None), None)

    def _tell(self, then: Callable[[BaseException | None], None], failure: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(then, failure)

    def _do_together(self, batch: list[_Asked], results: list[Any]) -> None:
        """Leaves no results if they must be done one by one."""
        assert self._cursor is not None
        done = TOGETHER[batch[0][1]](self._cursor, [args for _, _, args in batch])
        results += done or ()

    def _begin_patiently(self) -> None:
        assert self._cursor is not None
        try:
            self._cursor.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
            self._cursor.execute("BEGIN IMMEDIATE")
        finally:
            self._cursor.execute("PRAGMA busy_timeout = 0")  # the loop must not wait

    def _commit(self) -> None:
        assert self._cursor is not None
        try:
            self._cursor.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(self._cursor)
            raise


def _roll_back(cursor: sqlite3.Cursor) -> None:
    """A full disk and the like have undone the transaction already."""
    if cursor.connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            cursor.execute("ROLLBACK")


def _settle_one(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled: nobody waits any longer
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
