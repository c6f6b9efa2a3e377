"""Where router and workers keep what all of them must know: a file by default, Redis by configuration.

The bus delivers at least once. That a step has one outcome and a message one end, whoever is killed in between, is
because the first to write it down here is right, and all others follow.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from slipstream.slip.store.sqlite import SqliteStore
from slipstream.slip.store.store import Store, StoreClosed, StoreUnavailable, Timer, Tracked, UnusableStore

__all__ = ["Store", "StoreClosed", "StoreUnavailable", "Timer", "Tracked", "UnusableStore", "open_store"]


class Opening:
    """`await open_store(url)`, or `async with open_store(url) as store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __await__(self) -> Generator[Any, None, Store]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Store:
        await self._store.open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.close()


def open_store(url: str) -> Opening:
    """A store in Redis if this is an address of it (`redis://`, `rediss://`, `unix://`), else in the file of this path
    (`slips.db`, `sqlite:///var/lib/slips.db`), or in `:memory:`, which is forgotten when it is closed.

    Example:
        async with open_store("data/slips.db") as store:
            await store.claim("slip:c-123", "end", b"done", ttl_ms=60_000)
    """
    return Opening(_make_store(url))


def _make_store(url: str) -> Store:
    if url.startswith(("redis://", "rediss://", "unix://")):
        from slipstream.slip.store.redis import RedisStore  # noqa: PLC0415 - its library is not always installed

        return RedisStore(url)
    path = url.removeprefix("sqlite://")
    if not path:
        raise UnusableStore("a store needs a path, such as data/slips.db")
    if "://" in path:
        kind = path.partition("://")[0]
        raise UnusableStore(f"{kind}:// is no kind of store: name a file, or redis://, rediss:// or unix://")
    return SqliteStore(path)
