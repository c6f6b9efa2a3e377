"""`slipstream slip worker --engine spark`, as an operator runs it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.cli import main
from slipstream.slip import RouteTable, Work, Worker, open_store
from tests.cli.aside import aside
from tests.cli.commands import signalled
from tests.pipeline.steps.site import Site
from tests.pipeline.steps.worker_process import SparkWorker
from tests.server_process import ServerProcess
from tests.slip.lab import Lab, fast, lab

EMBED = "tests.pipeline.steps.functions:embed"
FRAME = "tests.pipeline.steps.functions:frame"

ROUTES = RouteTable.of(
    {"routes": {"order.v1": {"steps": ["fetch", {"id": "embed", "max_attempts": 2}, "rank", "store"]}}}
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    process.start()
    yield process
    process.kill()


def ordinary() -> Worker:
    worker = Worker()

    @worker.step("fetch")
    async def fetch(work: Work) -> dict[str, str]:
        return {"fetched": work.correlation_id}

    @worker.step("rank")
    async def rank(work: Work) -> dict[str, int]:
        return {"rank": work.payload["square"] + 1}

    @worker.step("store")
    async def store(work: Work) -> dict[str, int]:
        return {"reply": work.payload["rank"]}

    return worker


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, server: ServerProcess, tmp_path: Path) -> None:
    """Commands of this process find the server, and keep what they keep in the folder of the test."""
    ours = {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": server.base, "PIPELINE_TABLES": str(tmp_path / "tables")}
    for name, value in {**ours, "SLIP_STORE": str(tmp_path / "slips.db")}.items():
        monkeypatch.setenv(name, value)


def work(*arguments: str, **environment: str) -> Result:
    """In this process."""
    command = ["slip", "worker", "--engine", "spark", "--master", "local[2]", *arguments]
    result = CliRunner().invoke(main, command, env={"NO_COLOR": "1", **environment})
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result


@contextlib.asynccontextmanager
async def shop_on(url: str, prefix: str, store: Path) -> AsyncIterator[Lab]:
    async with (
        open_bus(driver="http", url=url, prefix=prefix, registry=CollectorRegistry()) as bus,
        open_store(str(store)) as opened,
        lab(bus, ROUTES, ordinary(), settings=fast(store=str(store)), store=opened) as seen,
    ):
        yield seen


async def submit_all(seen: Lab, count: int, guilty: int) -> None:
    for n in range(count):
        poison = "raise" if n == guilty else None
        await seen.submit("order.v1", {"n": n, "poison": poison}, correlation_id=f"c-{n}")
    fetched = {f"c-{n}" for n in range(count)}

    def are_fetched() -> bool:
        done = {one.correlation_id for one in seen.progress if (one.kind, one.step) == ("finished", "fetch")}
        return done == fetched

    await seen.until(are_fetched)


@pytest.mark.usefixtures("on_spark", "bus")
@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_step_on_spark_among_ordinary_ones_with_one_poisoned_row(
    server: ServerProcess, tmp_path: Path, count: int
) -> None:
    guilty = count * 3 // 5
    with aside() as there, there.opened(shop_on(server.base, "s.", tmp_path / "slips.db")) as seen:
        there.run(submit_all(seen, count, guilty))

        def all_ended(is_running: Callable[[], bool]) -> None:
            there.until(seen.until(lambda: len(seen.delivered) + len(seen.dead) == count), is_running)

        with signalled(signal.SIGTERM, all_ended):
            said = work(EMBED, BUS_PREFIX="s.").output
    assert {each["payload"]["n"]: each["payload"]["reply"] for each in seen.delivered} == {
        n: n * n + 1 for n in range(count) if n != guilty
    }
    (letter,) = seen.dead
    assert letter["payload"]["n"] == guilty
    assert (letter["lastStep"]["id"], letter["error"]["code"], letter["lastStep"]["attempt"]) == (
        "embed",
        "ValueError",
        1,
    )
    slip = {step["id"]: step for step in seen.delivered[0]["envelope"]["routingSlip"]}
    assert slip["embed"]["startedAt"] <= slip["embed"]["endedAt"] <= slip["rank"]["startedAt"]
    assert "embed" in said


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark", "bus")
@pytest.mark.parametrize(("count", "kills"), [(1_500, 1), pytest.param(6_000, 2, marks=pytest.mark.long)])
def test_killed_and_started_again_it_answers_each_message_once(
    server: ServerProcess, tmp_path: Path, count: int, kills: int
) -> None:
    site = Site(server.base, "k.")
    with site.client:
        site.put_numbers(count)
        for _ in range(kills):
            worker = SparkWorker(server.base, tmp_path, "k.", "--master", "local[2]", EMBED, PIPELINE_STEP_ROWS="50")
            try:
                worker.wait_for("embed: 50 OK")
            finally:
                worker.kill()
            assert site.lag > 0, "it was too fast to be killed in the middle"
        work("--once", EMBED, BUS_PREFIX="k.")
        assert site.squares() == {n: n * n for n in range(count)}
        assert site.lag == 0


# What is said before Spark starts


def refused(*arguments: str, **environment: str) -> str:
    given = {"MESSAGE_BUS_DRIVER": "http", "NO_COLOR": "1", **environment}
    result = CliRunner().invoke(main, ["slip", "worker", *arguments], env=given)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere:embed", "cannot be imported"),
        ("tests.pipeline.steps.functions:os", "declare it with @spark_step"),
        ("embed", "is no module:name"),
    ],
)
def test_what_is_no_step_is_said(reference: str, said: str) -> None:
    assert said in refused("--engine", "spark", reference)


def test_a_bus_without_commits_is_said() -> None:
    assert "MESSAGE_BUS_DRIVER=http" in refused("--engine", "spark", EMBED, MESSAGE_BUS_DRIVER="nats")


def test_two_functions_for_a_topic_are_said() -> None:
    assert "two functions" in refused("--engine", "spark", EMBED, FRAME)


def test_options_of_spark_without_spark_are_said() -> None:
    assert "--engine spark" in refused("--once", "tests.pipeline.steps.functions:embed")


def test_an_address_of_spark_that_is_none_is_said(server: ServerProcess, tmp_path: Path) -> None:
    environment = {"SLIPSTREAM_URL": server.base, "SLIP_STORE": str(tmp_path / "slips.db")}
    assert "local[*]" in refused("--engine", "spark", "--master", "nowhere", EMBED, **environment)
