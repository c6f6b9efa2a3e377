"""The service behind a port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from slipstream.jobs.api import create_app
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.service import Service
from slipstream.listening import listen, url_of

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the program's: it ends the bus first, and then this."""
        yield


@contextlib.asynccontextmanager
async def listening(service: Service) -> AsyncIterator[str]:
    """Answers at JOBS_HOST and JOBS_PORT until the end of the `async with`; yields its URL. Raises InvalidJobs.

    Example:
        async with serving() as service, listening(service) as url:
            print(url)
    """
    settings = service.settings
    listener = _bind(settings.host, settings.port)
    server = _Server(
        uvicorn.Config(
            create_app(service),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
    )
    answering = asyncio.create_task(server.serve(sockets=[listener]))
    url = url_of(listener)
    log.info("jobs are taken at %s/jobs", url)
    try:
        yield url
    finally:
        server.should_exit = True
        await answering
        listener.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        raise InvalidJobs(
            f"{host}:{port} cannot be listened at: {error.strerror}; set JOBS_PORT, or stop what is there"
        ) from error
