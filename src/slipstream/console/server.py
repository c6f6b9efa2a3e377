"""The console behind a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn

from slipstream import listening
from slipstream.console.app import Console
from slipstream.console.settings import InvalidConsole

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    def __init__(self, console: Console) -> None:
        self._console = console
        super().__init__(
            uvicorn.Config(
                console,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=5,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        log.info("stopping: answering what is under way")
        self._console.stop()
        self.handle_exit(number, None)


async def serve(console: Console, listener: socket.socket) -> None:
    """Answers until SIGTERM or SIGINT."""
    await console.open()
    try:
        await _Server(console).serve(sockets=[listener])
    finally:
        await console.close()


def listen(host: str, port: int, *, announce: bool = True) -> socket.socket:
    """Open the port. `announce` logs the address of the page.

    Below `slipstream up` the page is at the broker's address, and the one of this process is not announced.

    Raises InvalidConsole."""
    try:
        listener = listening.listen(host, port)
    except OSError as error:
        raise InvalidConsole(
            f"{host}:{port} cannot be listened at: {error.strerror}; choose another with --port, or stop what is there"
        ) from error
    if announce:
        log.info("the console is at %s/", listening.url_of(listener))
    else:
        log.debug("listening on %s", listening.url_of(listener))
    return listener
