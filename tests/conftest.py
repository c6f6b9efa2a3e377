"""How the tests are distributed, and fixtures that every test may use.

Each heavy thing is built once per run. Tests that use the Spark session run in a row on one worker, and so do those in
the browser; of the rest, those of a module with a fixture of its own do. Servers that a test leaves alone are those of
`run_services`.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from slipstream.cli.logs import JsonFormatter, TextFormatter
from tests.forked import start_early
from tests.run_services import RunServices
from tests.scheduling import UnitsOfWork, weight, write_groups
from tests.server_process import ServerProcess

# How long an example takes is no reason to fail: the machine is shared.
settings.register_profile("slipstream", deadline=None)
settings.load_profile("slipstream")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell: the programs that are started here would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartServer = Callable[..., ServerProcess]


GC_OBJECTS = 20_000
"""New objects before the garbage collector runs; with 700, the default, it took a fifteenth of the processor time."""

SERVICES = pytest.StashKey[RunServices]()
GROUPS = "groups.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIRECTORY", help="where the tests in a browser leave what they saw")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadscope":
        return None
    return UnitsOfWork(config, log, config.stash[SERVICES].folder / GROUPS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests that pytest collects from garbage collection: they are many, and stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GC_OBJECTS, 20, 20)
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let DuckDB free its frozen objects, which it reports as leaks otherwise; the reports of workers are not shown."""
    if not hasattr(session.config, "workerinput"):
        gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a heavy fixture, and put first what takes longest; the order stays random otherwise."""
    for item in items:
        for name in ("spark", "browser"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)
    items.sort(key=weight)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    workerinput = getattr(session.config, "workerinput", None)
    if workerinput:
        write_groups(session.config.stash[SERVICES].folder / GROUPS, workerinput["workerid"], session.items)


def pytest_configure(config: pytest.Config) -> None:
    workerinput = getattr(config, "workerinput", None)
    folder = Path(workerinput["services"] if workerinput else tempfile.mkdtemp(prefix="slipstream-tests-"))
    config.stash[SERVICES] = RunServices(folder)
    if workerinput:
        start_early()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the folder of the services, which this process starts before it starts the first worker."""
    services = node.config.stash[SERVICES]
    node.workerinput["services"] = str(services.folder)
    services.start_all()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        services = config.stash[SERVICES]
        services.stop()
        shutil.rmtree(services.folder)


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
def services(request: pytest.FixtureRequest) -> RunServices:
    return request.config.stash[SERVICES]


@pytest.fixture(scope="session")
def shared(services: RunServices) -> Iterator[ServerProcess]:
    """The broker of the run, for tests that leave nothing behind but topics of their own: see `topic`."""
    server = ServerProcess.attached(services.port("broker"), services.data("broker"))
    yield server
    server.client.close()


_numbers = itertools.count()


@pytest.fixture
def topic(shared: ServerProcess) -> str:
    """A topic on the shared broker that only this test uses."""
    name = f"topic-{os.getpid()}-{next(_numbers)}"
    shared.create(name)
    return name


@pytest.fixture(scope="session")
def spark(services: RunServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the run."""
    from tests.pipeline.shared_spark import shared_session

    services.build_once("spark")
    with shared_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands that run in this process use the Spark session of the run."""
    from tests.pipeline.shared_spark import share_with_commands

    share_with_commands(spark, monkeypatch)
