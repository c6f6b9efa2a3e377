"""A store in Redis, for routers and workers on several machines.

A write is as safe as Redis is set up to make it: with `appendonly yes` and `appendfsync always`, when it returns; with
`everysec`, the last second may be lost with the machine. Facts are forgotten by Redis itself; slips by `purge`.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from slipstream.slip.progress import ENDS
from slipstream.slip.store import redis_scripts
from slipstream.slip.store.store import StoreClosed, StoreUnavailable, Timer, Tracked, UnusableStore
from slipstream.slip.store.summary import decode_summary, encode_summary, summary_of

try:
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import DataError, RedisError
except ImportError as error:
    raise UnusableStore(
        f"a store in Redis needs a library that is not installed ({error}): pip install 'slipstream[redis]'"
    ) from error

T = TypeVar("T")

PREFIX = "slipstream:"
CONNECTIONS_MAX = 32
"""More would not make Redis, which does one thing at a time, any faster."""
TIMEOUT_S = 5.0
"""So long an answer is waited for, and a connection that is free."""
PURGE_S = 0.1
PURGE_SLIPS = 50
FILL_SLIPS = 1_000
_TIME_AND_TURN = struct.Struct(">qI")
"""Before each progress: its `at_ms`, and how many were there before it."""


class RedisStore:
    """Belongs to one event loop. Its keys start with `prefix`: stores with different ones know nothing of each other.

    Everything may be asked for twice without harm, so what fails on a connection is tried on a new one.

    Example:
        store = RedisStore("redis://127.0.0.1:6379/0")
        await store.open()
    """

    def __init__(self, url: str, *, prefix: str = PREFIX) -> None:
        self.address = _address(url)
        self._prefix = prefix
        try:
            self._pool: Any = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=TIMEOUT_S,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                decode_responses=False,
                protocol=2,
                # One: a connection may be dead without anybody knowing before it is used.
                retry=Retry(NoBackoff(), 1),
            )
        except (ValueError, TypeError) as error:
            raise UnusableStore(f"{self.address} is no address of a Redis server: {error}") from error
        self._redis: Any = Redis(connection_pool=self._pool)
        self._open = False
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._claim = self._redis.register_script(redis_scripts.CLAIM)
        self._put = self._redis.register_script(redis_scripts.PUT)
        self._schedule = self._redis.register_script(redis_scripts.SCHEDULE)
        self._unschedule = self._redis.register_script(redis_scripts.UNSCHEDULE)
        self._due = self._redis.register_script(redis_scripts.DUE)
        self._track = self._redis.register_script(redis_scripts.TRACK)
        self._purge = self._redis.register_script(redis_scripts.PURGE)
        self._summaries, self._still_open, self._ended, self._expiry = (
            f"{prefix}{name}" for name in ("slips", "open", "ended", "expiry")
        )
        self._end_states = {state: f"{prefix}ended:{state}" for state in sorted(ENDS)}

    def __repr__(self) -> str:
        return f"<RedisStore {self.address}>"

    async def open(self) -> None:
        if self._open or self._closed:
            raise StoreClosed(f"{self.address}: this store was opened before: make another")
        self._open = True
        try:
            await self._answer(self._redis.ping())
            await self._fill_end_states()
        except BaseException:
            self._open = False
            await self._pool.disconnect()
            raise

    async def _fill_end_states(self) -> None:
        """Sort the ended slips of an earlier version, which did not, by the state they ended in; once."""
        done = f"{self._prefix}end-states-filled"
        if await self._answer(self._redis.exists(done)):
            return
        cursor = 0
        while True:
            cursor, members = await self._answer(self._redis.zscan(self._ended, cursor, count=FILL_SLIPS))
            pipeline = self._redis.pipeline(transaction=False)
            for each in await self._listed([slip for slip, _ in members]):
                if each.ended and each.state in self._end_states:
                    pipeline.zadd(self._end_states[each.state], {each.slip: each.moved_ms})
            await self._answer(pipeline.execute())
            if not cursor:
                break
        await self._answer(self._redis.set(done, "1"))

    async def close(self) -> None:
        """Waits for what was asked for."""
        self._open, self._closed = False, True
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await self._pool.disconnect()

    async def claim(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> bytes:
        assert ttl_ms > 0
        kept: bytes | None = await self._answer(self._claim([self._record(record)], [name, value, ttl_ms]))
        return value if kept is None else kept

    async def put(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> None:
        assert ttl_ms > 0
        await self._answer(self._put([self._record(record)], [name, value, ttl_ms]))

    async def get(self, record: str, name: str) -> bytes | None:
        value: bytes | None = await self._answer(self._redis.hget(self._record(record), name))
        return value

    async def get_two(self, record: str, first: str, second: str) -> tuple[bytes | None, bytes | None]:
        found: list[bytes | None] = await self._answer(self._redis.hmget(self._record(record), [first, second]))
        return found[0], found[1]

    async def facts(self, record: str, prefix: str = "") -> dict[str, bytes]:
        found: dict[bytes, bytes] = await self._answer(self._redis.hgetall(self._record(record)))
        start = prefix.encode()
        return {name.decode(): value for name, value in sorted(found.items()) if name.startswith(start)}

    async def remove(self, record: str, *names: str) -> None:
        if names:
            await self._answer(self._redis.hdel(self._record(record), *names))

    async def schedule(self, queue: str, timer: Timer) -> None:
        await self._answer(self._schedule(self._timers(queue), [timer.id, timer.due_ms, timer.value]))

    async def unschedule(self, queue: str, timer_id: str, *, due_ms: int | None = None) -> None:
        await self._answer(self._unschedule(self._timers(queue), [timer_id, "" if due_ms is None else due_ms]))

    async def due(self, queue: str, now_ms: int, *, limit: int, lease_ms: int) -> list[Timer]:
        put_off_ms = now_ms + lease_ms
        found: list[bytes] = await self._answer(self._due(self._timers(queue), [now_ms, limit, put_off_ms]))
        return [
            Timer(timer_id.decode(), put_off_ms, value) for timer_id, value in zip(found[::2], found[1::2], strict=True)
        ]

    async def track(
        self, slip: str, progress: bytes, *, at_ms: int, kind: str, step: str, state: str, ended: bool, ttl_ms: int
    ) -> None:
        heard = summary_of(at_ms=at_ms, kind=kind, step=step, state=state, ended=ended, ttl_ms=ttl_ms)
        digest = hashlib.blake2b(progress, digest_size=16).digest()
        states = self._end_states
        keys = [self._history(slip), self._summaries, self._still_open, self._ended, self._expiry, *states.values()]
        packed = at_ms.to_bytes(8, "big", signed=True)
        known, summary = b"", heard
        # It says what it believes to be there, and is told what is, so that two who add at once do not lose either's.
        while True:
            where = "ended" if summary.ended else "open"
            end_state = states.get(summary.end.state, "") if summary.ended else ""
            after: list[bytes | int | str] = [encode_summary(summary), summary.moved_ms, where, summary.expires_ms]
            after.append(end_state)
            there: bytes | None = await self._answer(self._track(keys, [digest, packed, progress, slip, known, *after]))
            if there is None:
                return
            known, summary = there, decode_summary(there).and_then(heard)

    async def history(self, slip: str) -> list[bytes]:
        found: dict[bytes, bytes] = await self._answer(self._redis.hgetall(self._history(slip)))
        # What is in front of each sorts as numbers do, for none is before 1970.
        return [value[_TIME_AND_TURN.size :] for value in sorted(found.values())]

    async def tracked(
        self,
        *,
        ended: bool | None = None,
        end_state: str = "",
        moved_before_ms: int | None = None,
        limit: int = 100,
    ) -> list[Tracked]:
        if limit <= 0:
            return []
        if end_state:
            keys = [] if ended is False else [self._end_states[end_state]]
        else:
            keys = [self._still_open, self._ended] if ended is None else [self._ended if ended else self._still_open]
        pipeline = self._redis.pipeline(transaction=True)
        for key in keys:
            if moved_before_ms is None:
                pipeline.zrevrange(key, 0, limit - 1, withscores=True)
            else:
                pipeline.zrangebyscore(key, "-inf", f"({moved_before_ms}", start=0, num=limit, withscores=True)
        answers: list[list[tuple[bytes, float]]] = await self._answer(pipeline.execute())
        found = sorted(
            ((moved_ms, slip) for answer in answers for slip, moved_ms in answer), reverse=moved_before_ms is None
        )
        listed = await self._listed([slip for _, slip in found[:limit]])
        return [each for each in listed if not end_state or (each.ended and each.state == end_state)]

    async def known(self, slips: Sequence[str]) -> set[str]:
        if not slips:
            return set()
        found: list[bytes | None] = await self._answer(self._redis.hmget(self._summaries, list(slips)))
        return {slip for slip, summary in zip(slips, found, strict=True) if summary is not None}

    async def _listed(self, slips: Sequence[bytes]) -> list[Tracked]:
        if not slips:
            return []
        summaries: list[bytes | None] = await self._answer(self._redis.hmget(self._summaries, slips))
        return [
            decode_summary(summary).tracked(slip.decode())
            for slip, summary in zip(slips, summaries, strict=True)
            if summary is not None  # purged meanwhile
        ]

    async def purge(self, now_ms: int) -> int:
        keys = [self._summaries, self._still_open, self._ended, self._expiry, *self._end_states.values()]
        until = time.monotonic() + PURGE_S
        count = 0
        while purged := int(await self._answer(self._purge(keys, [now_ms, PURGE_SLIPS, self._history("")]))):
            count += purged
            if time.monotonic() >= until:
                break
        return count

    # How

    def _record(self, record: str) -> str:
        return f"{self._prefix}record:{record}"

    def _history(self, slip: str) -> str:
        return f"{self._prefix}history:{slip}"

    def _timers(self, queue: str) -> list[str]:
        return [f"{self._prefix}timers:{queue}", f"{self._prefix}timer-values:{queue}"]

    async def _answer(self, asked: Awaitable[Any]) -> Any:
        if not self._open:
            _discard(asked)
            state = "closed" if self._closed else "not open yet: await open()"
            raise StoreClosed(f"{self.address}: this store is {state}")
        self._running += 1
        try:
            return await asked
        except DataError:
            raise  # somebody gave something that is neither text nor bytes
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"Redis at {self.address}: {error or type(error).__name__}") from error
        finally:
            self._running -= 1
            self._idle.set()


def _discard(asked: Awaitable[Any]) -> None:
    if asyncio.iscoroutine(asked):
        asked.close()


def _address(url: str) -> str:
    """For people: without the password that may be in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
