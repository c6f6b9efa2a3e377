"""The server: an engine, a port, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from slipstream import listening
from slipstream.broker import BrokerConfig
from slipstream.engine import Condition, Engine, EngineConfig, Redrives
from slipstream.limits import Limits
from slipstream.plurals import counted
from slipstream.router import RouterHook, load_router
from slipstream.server.app import Console, allowed_methods, create_app
from slipstream.server.connection import Connection
from slipstream.server.front import Front
from slipstream.server.metrics import BrokerCollector, Metrics
from slipstream.server.response import DATE
from slipstream.server.v1 import V1
from slipstream.server.v2.hot import Hot
from slipstream.store import Store, StoreConfig

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""How long the loop's thread may keep the interpreter while the journal's waits for it. Python's 5 ms is longer than a
sync takes: with it the p99 of durable produces was 3.6 ms instead of 2.5 ms."""


class ServerConfig:
    """Everything `serve` needs, already validated."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        data: Path,
        broker: BrokerConfig,
        store: StoreConfig,
        engine: EngineConfig,
        limits: Limits,
        router: str = "",
        router_timeout_ms: int = 500,
        shutdown_timeout_ms: int = 10_000,
        console: Callable[[Engine], Console] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.data = data
        self.broker = broker
        self.store = store
        self.engine = engine
        self.limits = limits
        self.router = router
        self.router_timeout_ms = router_timeout_ms
        self.shutdown_timeout_ms = shutdown_timeout_ms
        self.console = console
        """Makes the application that answers the console's calls; without one they are not there."""


class Server(uvicorn.Server):
    """One engine behind one port, ended by `stop`, SIGTERM or SIGINT once everything is answered."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        router: RouterHook | None = None,
        shutdown_timeout_ms: int = 10_000,
        *,
        take_signals: bool = True,
        console: Console | None = None,
    ) -> None:
        self.engine = engine
        self._console = console
        self.router = router
        if router is not None:
            engine.broker.intake.on_routed = router.note_outcome
            engine.condition_sources.append(lambda: _router_condition(router))
        self.v1 = V1(engine, router)
        self.front = Front(engine, self.v1.routes | Hot(engine, router, limits).routes, limits)
        self.redrives = Redrives(engine, limits.redrives)
        self._take_signals = take_signals
        metrics = Metrics(BrokerCollector(engine, self.front, router))
        self._app = create_app(engine, limits, metrics, self.redrives, console)
        self.front.app_methods = lambda path: allowed_methods(self._app, path)
        super().__init__(
            uvicorn.Config(
                self._app,
                http=type("BoundConnection", (Connection,), {"front": self.front}),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, shutdown_timeout_ms // 1000),
            )
        )

    def stop(self) -> None:
        self._end_streams()
        self.should_exit = True

    def _end_streams(self) -> None:
        self._app.state.stopping.set()
        if self._console is not None:
            self._console.stop()

    def _stop_by_signal(self, number: int) -> None:
        connections = counted(len(self.server_state.connections), "connection")
        log.info("stopping: answering what is under way on %s", connections)
        self._end_streams()
        self.handle_exit(number, None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if self._take_signals else ()
        for number in signals:
            loop.add_signal_handler(number, self._stop_by_signal, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def answer(self, listener: socket.socket) -> None:
        """Serves until it is told to stop; then the engine is closed, with everything answered and written."""
        sweeper = asyncio.create_task(_sweep(self))
        try:
            if self._console is not None:
                await self._console.open()
            await self.serve(sockets=[listener])
        finally:
            sweeper.cancel()
            await self.close()

    async def close(self) -> None:
        if self._console is not None:
            await self._console.close()
        await self.redrives.close()
        await self.engine.close()
        if self.router is not None:
            await self.router.close()


def _router_condition(router: RouterHook) -> Condition | None:
    trouble = router.trouble
    if not trouble:
        return None
    return Condition(kind="router", level="warning", text="messages are stored without the router", detail=trouble)


def serve(config: ServerConfig) -> None:
    """Runs until it is told to stop.

    Raises RouterRefused for a router that cannot be used, Damaged or DirectoryInUse for a directory that cannot, and
    Unavailable at the end if it had stopped taking messages.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    router = load_router(config.router, config.router_timeout_ms) if config.router else None
    store = Store(config.data, config.store)
    engine = Engine(config.broker, store, config.engine)
    try:
        engine.recover()
    except BaseException:
        store.close()
        raise
    # What was recovered lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, engine, router, store))
    if engine.trouble is not None:
        raise engine.trouble


async def _serve(config: ServerConfig, engine: Engine, router: RouterHook | None, store: Store) -> None:
    engine.start(asyncio.get_running_loop())
    console = None if config.console is None else config.console(engine)
    server = Server(engine, config.limits, router, config.shutdown_timeout_ms, console=console)
    log.info("data in %s: %s", config.data.absolute(), _describe(engine))
    try:
        listener = listen(config.host, config.port, store.announce_address)
    except BaseException:
        await server.close()
        raise
    await server.answer(listener)
    log.info("stopped: the directory is free")


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(server.front.sweep_ms / 1000)
        DATE.refresh()
        server.v1.forget_rendered()
        for connection in list(server.server_state.connections):
            if isinstance(connection, Connection):
                connection.sweep()


def listen(host: str, port: int, announce: Callable[[str], None] | None = None) -> socket.socket:
    """Open the port. `announce` gets the URL for programs of this machine, before the log says that it is open."""
    listener = listening.listen(host, port)
    if announce is not None:
        announce(listening.local_url_of(listener))
    log.info("listening on %s", listening.url_of(listener))
    return listener


def _describe(engine: Engine) -> str:
    """What was found, so that a start in the wrong directory is seen at once."""
    if engine.store.is_new:
        return "new"
    topics = engine.broker.state.topics.values()
    messages = sum(partition.committed - partition.first_index for topic in topics for partition in topic.partitions)
    return f"{len(topics)} topics, {messages} messages"


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.Loop
