"""Fixtures every test may use: a real server in a process of its own, on a free port, gone when the test is."""

from __future__ import annotations

import itertools
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from slipstream.cli.logs import JsonFormatter, TextFormatter
from tests.server_process import ServerProcess

# How long an example takes is no reason to fail: the machine is shared.
settings.register_profile("slipstream", deadline=None)
settings.load_profile("slipstream")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell: the programs that are started here would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

StartServer = Callable[..., ServerProcess]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIRECTORY", help="where the tests in a browser leave what they saw")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that a test runs in this process sets up the logs of the process: the next test shall not hear more."""
    root = logging.getLogger()
    level = root.level
    formatters = {handler: handler.formatter for handler in root.handlers}
    yield
    root.setLevel(level)
    # Once PySpark has raised, its loggers keep what they say to themselves. Pytest hangs its handlers on each logger
    # that does so, and those of PySpark put their formatter on every handler they are given.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        if logger := logging.root.manager.loggerDict.get(name):
            logger.propagate = True  # type: ignore[union-attr]
    for handler, formatter in formatters.items():
        handler.setFormatter(formatter)
    for handler in root.handlers[:]:
        if isinstance(handler.formatter, JsonFormatter | TextFormatter):
            root.removeHandler(handler)  # it writes to what the test had for standard error, which is closed by now


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers: `start_server("--max-in-flight", "2")`, on the test's own directory unless told otherwise."""
    servers: list[ServerProcess] = []

    def start(*arguments: str, data: Path | None = None) -> ServerProcess:
        server = ServerProcess(data or tmp_path / "data", *arguments)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that leave nothing behind but a topic of their own: see `topic`."""
    server = ServerProcess(tmp_path_factory.mktemp("shared"))
    server.start()
    yield server
    server.kill()


_numbers = itertools.count()


@pytest.fixture
def topic(shared: ServerProcess) -> str:
    """A topic nobody else uses, on the shared server."""
    name = f"topic-{next(_numbers)}"
    shared.create(name)
    return name
