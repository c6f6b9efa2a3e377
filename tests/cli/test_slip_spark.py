"""`slipstream slip worker --engine spark`, as somebody would run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.cli import main
from slipstream.slip import RouteTable, Work, Worker, open_store
from tests.client.loop import in_loop_for
from tests.pipeline.cluster import Cluster, connect_server
from tests.pipeline.steps.site import Site
from tests.pipeline.steps.worker_process import SparkWorker
from tests.server_process import ServerProcess
from tests.slip.lab import fast, lab

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


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def conf(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]


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


@pytest.mark.slow
@pytest.mark.timeout(600)
@in_loop_for(500)
async def test_a_step_on_spark_among_ordinary_ones_with_one_poisoned_row_of_a_thousand(
    server: ServerProcess, tmp_path: Path
) -> None:
    count, guilty = 1_000, 617
    store, prefix = tmp_path / "slips.db", "s."
    async with (
        open_bus(driver="http", url=server.base, prefix=prefix, registry=CollectorRegistry()) as bus,
        open_store(str(store)) as opened,
        lab(bus, ROUTES, ordinary(), settings=fast(store=str(store)), store=opened) as seen,
    ):
        for n in range(count):
            poison = "raise" if n == guilty else None
            await seen.submit("order.v1", {"n": n, "poison": poison}, correlation_id=f"c-{n}")
        await seen.until(
            lambda: sum(kind == "finished fetch" for n in range(count) for kind in seen.kinds(f"c-{n}")) == count
        )
        worker = SparkWorker(server.base, tmp_path, prefix, "--master", "local[2]", EMBED)
        try:
            await seen.until(lambda: len(seen.delivered) + len(seen.dead) == count)
            assert worker.stop() == 0, worker.said
        finally:
            worker.kill()
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
    assert "embed" in worker.said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_and_started_again_it_answers_each_message_once(server: ServerProcess, tmp_path: Path) -> None:
    site = Site(server.base, "k.")
    with site.client:
        site.put_numbers(6_000)
        for _ in range(2):
            worker = SparkWorker(server.base, tmp_path, "k.", "--master", "local[2]", EMBED, PIPELINE_STEP_ROWS="50")
            try:
                worker.wait_for("embed: 50 OK")
            finally:
                worker.kill()
            assert site.lag > 0, "it was too fast to be killed in the middle"
        last = SparkWorker(server.base, tmp_path, "k.", "--master", "local[2]", "--once", EMBED)
        assert last.wait() == 0, last.said
        assert site.squares() == {n: n * n for n in range(6_000)}
        assert site.lag == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_on_a_cluster_that_loses_a_worker_and_with_a_secret_that_nobody_sees(
    server: ServerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    site = Site(server.base, "c.")
    events = tmp_path / "events"
    events.mkdir()
    options = cluster.conf | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"}
    with site.client:
        site.put_numbers(2_000)
        url = server.base.replace("http://", "http://user:s3cret@")
        worker = SparkWorker(
            url, tmp_path, "c.", "--master", cluster.master, *conf(options), "--once", EMBED, PIPELINE_STEP_ROWS="100"
        )
        try:
            worker.wait_for("embed: 100 OK")
            cluster.kill_worker()
            assert worker.wait() == 0, worker.said
        finally:
            worker.kill()
        assert site.squares() == {n: n * n for n in range(2_000)}
        assert site.lag == 0
    written = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert written, "Spark wrote its event log"
    said = (tmp_path / "spark-steps.log").read_text()
    for text in (*written, said, worker.said, cluster.logs()):
        assert "s3cret" not in text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [EMBED, FRAME])
def test_behind_spark_connect(server: ServerProcess, tmp_path: Path, step: str) -> None:
    site = Site(server.base, "r.")
    folder = tmp_path / "connect"
    folder.mkdir()
    with site.client, connect_server(folder) as url:
        site.put_numbers(200)
        worker = SparkWorker(server.base, tmp_path, "r.", "--remote", url, "--once", step)
        assert worker.wait() == 0, worker.said
        assert site.squares() == {n: n * n for n in range(200)}


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
