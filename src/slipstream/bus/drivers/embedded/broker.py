"""The broker that the buses of one process and loop share: a data directory can be opened only once."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from slipstream.bus.errors import BusUnavailable, InvalidArgument
from slipstream.bus.settings import BusSettings
from slipstream.engine import Engine, Storage
from slipstream.settings import SettingError
from slipstream.settings import load_settings as load_server_settings
from slipstream.store import Damaged, DirectoryInUse, ForeignDirectory, MemoryStore, Store

MEMORY = ":memory:"

_private = itertools.count()


class SharedBroker:
    """An engine, and how many buses are open on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.users = 0


_brokers: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[SharedBroker]] = {}


class Tenancy:
    """A bus's share in a broker, from `acquire` to `release`; the last to go closes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, place: str, broker: SharedBroker) -> None:
        self._key = (loop, place)
        self._broker = broker
        self.engine = broker.engine

    async def release(self) -> None:
        self._broker.users -= 1
        if self._broker.users == 0:
            _brokers.pop(self._key, None)
            await self._broker.engine.close()


async def acquire(settings: BusSettings) -> Tenancy:
    """Raises BusUnavailable where the directory cannot be used, saying why."""
    loop = asyncio.get_running_loop()
    place = _place(settings)
    opening = _brokers.get((loop, place))
    if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
        opening = _brokers[loop, place] = loop.create_task(_open(place))
    try:
        broker = await asyncio.shield(opening)
    except DirectoryInUse as error:
        raise BusUnavailable(f"{error}; if that is a slipstream serve, use it: MESSAGE_BUS_DRIVER=http") from error
    except (ForeignDirectory, OSError) as error:
        raise BusUnavailable(f"the embedded broker cannot be opened: {error}") from error
    except Damaged as error:
        raise BusUnavailable(f"{error}; see what a repair would do with: slipstream doctor {place}") from error
    except SettingError as error:
        raise InvalidArgument(str(error)) from error
    broker.users += 1
    return Tenancy(loop, place, broker)


def _place(settings: BusSettings) -> str:
    """What two buses must have in common to share a broker. Without a directory: a name, such as `:memory:tests`, or
    nothing, for a broker of one's own."""
    if settings.driver == "memory" or settings.data.startswith(MEMORY):
        name = settings.data.removeprefix(MEMORY) if settings.data.startswith(MEMORY) else ""
        return MEMORY + (name or f"#{next(_private)}")
    return str(Path(settings.data).absolute())


async def _open(place: str) -> SharedBroker:
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
    return SharedBroker(engine)
