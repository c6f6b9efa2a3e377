"""A broker in memory, behind a real port, at a time of the test's choosing."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from slipstream.client import AsyncClient, Client
from slipstream.engine import Engine, ManualClock
from slipstream.server import Server, listen
from slipstream.settings import load_settings
from slipstream.store import MemoryStore

ResultT = TypeVar("ResultT")

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class MemoryBroker:
    """A server with nothing on disk, in a thread of its own. Use it as a context manager.

    Takes the settings of `slipstream serve` by name, such as `max_in_flight=1`. Time starts at `start` and stands still
    until `advance`; only the wait of a long poll goes by the real clock, because somebody really waits for it.
    """

    def __init__(self, *, start: dt.datetime = START, **settings: Any) -> None:
        self._settings = load_settings(settings, environment={})
        self._clock = ManualClock(round(start.timestamp() * 1000))
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name="slipstream-memory-broker", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._engine: Engine
        self._server: Server
        self.url = ""
        """Where it listens, for any client."""

    def __enter__(self) -> MemoryBroker:
        self._thread.start()
        self.url = self._ready.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answers what is under way and ends."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
            self._thread.join()

    def client(self, **arguments: Any) -> Client:
        """A client of this broker."""
        return Client(self.url, **arguments)

    def async_client(self, **arguments: Any) -> AsyncClient:
        return AsyncClient(self.url, **arguments)

    @property
    def now(self) -> dt.datetime:
        """What time it is for the broker."""
        return dt.datetime.fromtimestamp(self._clock.now_ms() / 1000, dt.UTC)

    def advance(
        self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Moves the clock. Everything due meanwhile happens, each at its time, before this returns."""
        step = dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        if step < dt.timedelta(0):
            raise ValueError("time goes forward only")
        self._call(self._advance(round(step / dt.timedelta(milliseconds=1))))

    async def _advance(self, ms: int) -> None:
        self._clock.advance(ms)
        # What came due may have stored something, and that may have been delivered: both are through after two rounds.
        for _ in range(2):
            await self._engine.perform(lambda _broker, _now_ms: None)

    def _call(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(
            settings.broker_config(), MemoryStore(settings.store_config()), settings.engine_config(), self._clock
        )
        self._engine.recover()
        self._engine.start(self._loop)
        self._server = Server(self._engine, settings.limits(), take_signals=False)
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        self._ready.set_result(f"http://127.0.0.1:{port}")
        await self._server.answer(listener)
