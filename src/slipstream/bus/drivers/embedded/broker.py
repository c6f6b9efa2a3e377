"""The broker that the buses of one process and loop share: a data directory can be opened only once."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import NamedTuple, TypeAlias

from slipstream.bus.errors import BusUnavailable, InvalidArgument
from slipstream.bus.settings import BusSettings
from slipstream.engine import Engine, Storage
from slipstream.settings import SettingError
from slipstream.settings import load_settings as load_server_settings
from slipstream.store import Damaged, DirectoryInUse, ForeignDirectory, MemoryStore, Store

MEMORY = ":memory:"
REQUEST_OVERHEAD_BYTES = 64 << 10
"""For attributes, and for what is added to them when the message is a dead letter."""

_private = itertools.count()


class DirectoryBusy(BusUnavailable):
    """Another process, or another event loop of this one, runs on the data directory."""


class EmbeddedBroker(NamedTuple):
    engine: Engine
    message_bytes_max: int
    """What a server on the same directory takes in a request (SLIPSTREAM_MAX_BATCH_BYTES), less what else is in it."""


class SharedBroker:
    """A broker, once it is open, and how many buses have it, or wait for it."""

    def __init__(self, opening: asyncio.Task[EmbeddedBroker]) -> None:
        self.opening = opening
        self.users = 0


Key: TypeAlias = tuple[asyncio.AbstractEventLoop, str]

_brokers: dict[Key, SharedBroker] = {}
_closing: dict[Key, asyncio.Task[None]] = {}


class Tenancy:
    """A bus's share in a broker, from `acquire` to `release`; the last to go closes it."""

    def __init__(self, key: Key, broker: SharedBroker) -> None:
        self._key = key
        self._broker = broker
        broker.users += 1

    @property
    def broker(self) -> EmbeddedBroker:
        return self._broker.opening.result()

    async def opened(self) -> None:
        try:
            await asyncio.shield(self._broker.opening)
        except BaseException:
            self._leave()  # who is cancelled does not wait until it is open, and then closed
            raise

    async def release(self) -> None:
        if (closing := self._leave()) is not None:
            await closing

    def _leave(self) -> asyncio.Task[None] | None:
        self._broker.users -= 1
        if self._broker.users:
            return None
        del _brokers[self._key]
        closing = _closing[self._key] = asyncio.create_task(_close(self._broker.opening))
        closing.add_done_callback(lambda _: _closing.pop(self._key))
        return closing


async def acquire(settings: BusSettings) -> Tenancy:
    """Raises BusUnavailable where the directory cannot be used, saying why."""
    loop = asyncio.get_running_loop()
    place = _place(settings)
    key = (loop, place)
    while (closing := _closing.get(key)) is not None:
        await asyncio.wait({closing})
    broker = _brokers.get(key)
    if broker is None:
        broker = _brokers[key] = SharedBroker(loop.create_task(_open(place)))
    tenancy = Tenancy(key, broker)
    try:
        await tenancy.opened()
    except DirectoryInUse as error:
        if any(other is not loop and where == place for other, where in list(_brokers)):
            raise DirectoryBusy(
                f"{place} is open in another event loop of this process: use its bus, or MESSAGE_BUS_DRIVER=http"
            ) from error
        raise DirectoryBusy(f"{error}; if that is a server, use it: MESSAGE_BUS_DRIVER=http") from error
    except (ForeignDirectory, OSError) as error:
        raise BusUnavailable(f"the embedded broker cannot be opened: {error}") from error
    except Damaged as error:
        raise BusUnavailable(f"{error}; see what a repair would do with: slipstream doctor {place}") from error
    except SettingError as error:
        raise InvalidArgument(str(error)) from error
    return tenancy


def _place(settings: BusSettings) -> str:
    """What two buses must have in common to share a broker. Without a directory: a name, such as `:memory:tests`, or
    nothing, for a broker of one's own."""
    if settings.driver == "memory" or settings.data.startswith(MEMORY):
        name = settings.data.removeprefix(MEMORY) if settings.data.startswith(MEMORY) else ""
        return MEMORY + (name or f"#{next(_private)}")
    return str(Path(settings.data).absolute())


async def _open(place: str) -> EmbeddedBroker:
    server = load_server_settings({})  # SLIPSTREAM_RETENTION_MS and its like hold here as they do for a server
    in_memory = place.startswith(MEMORY)

    def recover() -> Engine:
        """Reads what the directory holds, which may take a second: not on the loop."""
        store: Storage = MemoryStore(server.store_config()) if in_memory else Store(Path(place), server.store_config())
        engine = Engine(server.broker_config(), store, server.engine_config())
        try:
            engine.recover()
        except BaseException:
            store.close()
            raise
        return engine

    engine = await asyncio.to_thread(recover)
    engine.start(asyncio.get_running_loop())
    return EmbeddedBroker(engine, max(1, server.max_batch_bytes - REQUEST_OVERHEAD_BYTES))


async def _close(opening: asyncio.Task[EmbeddedBroker]) -> None:
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().engine.close()
