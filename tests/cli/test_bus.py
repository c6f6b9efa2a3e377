"""`slipstream bus tap`, as a process, and `slipstream bus doctor`, on engines that really run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slipstream.bus import Bus, Message, Reject, open_bus
from slipstream.cli import main
from tests.bus.recorder import Recorder
from tests.bus.sites import make_site
from tests.bus.sites.http import HttpSite
from tests.bus.sites.site import Site
from tests.client.loop import in_loop
from tests.conftest import StartServer
from tests.forked import Forked


@pytest.fixture(scope="module", params=["http", "nats", "pubsub"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    made = make_site(request.param)
    yield made
    made.close()


def environment() -> dict[str, str]:
    """Without any bus in it."""
    ours = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "NATS_", "PUBSUB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "NO_COLOR": "1"}


def run(*arguments: str, variables: dict[str, str], expect: int = 0) -> Result:
    """Run a command in this process, on a thread: that of the test may have an event loop."""
    ours = {name: None for name in os.environ if name not in environment()}
    with ThreadPoolExecutor(1) as thread:
        invoked = thread.submit(
            CliRunner().invoke, main, ("bus", *arguments), env={**ours, **variables, "NO_COLOR": "1"}
        )
    ended = invoked.result()
    assert ended.exit_code == expect, f"{ended.exit_code}\n{ended.output}\n{ended.exception!r}"
    assert ended.exception is None or isinstance(ended.exception, SystemExit), "a process would show a traceback"
    assert "Traceback" not in ended.stderr
    return ended


@contextlib.contextmanager
def tapping(site: Site, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[tuple[Forked, str]]:
    """A tap that listens, and what it said of itself."""
    command = [sys.executable, "-m", "slipstream", "bus", "tap", *arguments]
    with Forked(command, env={**environment(), **site.environment()}, stdout=stdout, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr.readline()
        finally:
            process.kill()


def make(site: Site, *topics: str) -> None:
    """Before somebody listens: a topic of NATS that is made by its first message is heard with it twice."""

    async def ensure() -> None:
        async with open_bus(**site.settings()) as bus:
            for topic in topics:
                await bus.ensure_topic(topic)

    asyncio.run(ensure())


async def publish(site: Site, topic: str, *data: bytes, **given: Any) -> None:
    async with open_bus(**site.settings()) as bus:
        for each in data:
            await bus.publish(topic, each, **given)


def in_order(site: Site, found: Iterable[str]) -> list[str]:
    """As they were published; where the engine keeps no order, in one that is always the same."""
    return list(found) if site.orders else sorted(found)


# tap


def test_what_passes_is_a_line_of_what_somebody_looks_for(site: Site) -> None:
    make(site, "lines.orders", "other")
    with tapping(site, "lines.*", "--limit", "2") as (process, said):
        assert "listening to lines.* on " in said
        assert site.driver in said
        attributes = {"correlationId": "c-17", "customerId": "C 4\n2"}
        asyncio.run(publish(site, "other", b"not this"))
        asyncio.run(publish(site, "lines.orders", b'{"books": 2}', attributes=attributes, key="user:1"))
        asyncio.run(publish(site, "lines.orders", b"[bold]" + b"x" * 300, attributes=attributes))
        shown, error = process.communicate(timeout=30)
    assert in_order(site, (line.split(maxsplit=1)[1] for line in shown.splitlines())) == [
        'lines.orders 12 B user:1 c-17 {"books": 2} customerId=C 4\\n2',
        "lines.orders 306 B - c-17 [bold]" + "x" * 194 + "… customerId=C 4\\n2",
    ]
    assert (process.returncode, error) == (0, "")


def test_for_machines_a_message_is_a_line_of_json_with_all_of_it(site: Site) -> None:
    make(site, "json.orders")
    with tapping(site, "json.*", "--json", "--limit", "2") as (process, _):
        asyncio.run(publish(site, "json.orders", b"text", b"\xff", attributes={"correlationId": "c"}, key="k"))
        shown, _ = process.communicate(timeout=30)
    lines = [json.loads(line) for line in shown.splitlines()]
    text, raw = lines if site.orders else sorted(lines, key=lambda line: "encoding" in line)
    assert (text["topic"], text["key"], text["data"]) == ("json.orders", "k", "text")
    assert text["attributes"]["correlationId"] == "c"
    assert "traceparent" in text["attributes"]
    assert (raw["data"], raw["encoding"]) == ("/w==", "base64")


def test_where_no_log_is_kept_a_dead_letter_topic_is_listened_to(site: Site) -> None:
    if site.driver != "pubsub":
        pytest.skip(f"on {site.driver} its log is followed")
    make(site, "lost.DLQ")
    with tapping(site, "lost.DLQ", "-n", "1") as (process, _):
        asyncio.run(publish(site, "lost.DLQ", b"one"))
        shown, error = process.communicate(timeout=30)
    assert shown.split()[1] == "lost.DLQ", error


@in_loop
async def test_nothing_is_taken_from_a_group(site: Site) -> None:
    async with open_bus(**site.settings()) as bus:
        handled = Recorder()
        await bus.subscribe("taken.orders", "g", handled)
        with tapping(site, "taken.*", "--limit", "2") as (process, _):
            await bus.publish("taken.orders", "a")
            await bus.publish("taken.orders", "b")
            await asyncio.to_thread(process.communicate, timeout=30)
        assert in_order(site, (message.text for message in await handled.have(2))) == ["a", "b"]


def test_the_prefix_of_the_application_is_not_part_of_the_names(site: Site) -> None:
    make(site, "orders", "dev.orders")
    with tapping(site, "orders", "--prefix", "dev.", "--limit", "1", "--json") as (process, said):
        assert "dev.orders" in said
        asyncio.run(publish(site, "orders", b"not this"))
        asyncio.run(publish(site, "dev.orders", b"this"))
        shown, _ = process.communicate(timeout=30)
    message = json.loads(shown)
    assert (message["topic"], message["data"]) == ("orders", "this")


def test_ctrl_c_ends_a_tap_quietly(site: Site) -> None:
    with tapping(site) as (process, _):
        process.send_signal(signal.SIGINT)
        shown, error = process.communicate(timeout=30)
    assert (process.returncode, shown, error) == (130, "", "")


def test_who_closes_the_pipe_ends_a_tap_quietly(site: Site) -> None:
    make(site, "pipe")
    reader, writer = os.pipe()
    with tapping(site, stdout=writer) as (process, _):
        os.close(writer)
        os.close(reader)
        asyncio.run(publish(site, "pipe", b"x"))
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")


def test_what_is_in_memory_cannot_be_tapped() -> None:
    assert "inside the process" in run("tap", "--driver", "memory", variables={}, expect=1).stderr


def test_inside_an_application_there_is_nothing_to_tap(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said = run("tap", "--driver", "embedded", variables={"SLIPSTREAM_DATA": str(data)}, expect=1).stderr
    assert f"slipstream serve --data {data}" in said
    assert "MESSAGE_BUS_DRIVER=http" in said
    assert not data.exists()


def test_where_nobody_answers_a_tap_says_what_to_do() -> None:
    url = "http://me:secret@127.0.0.1:9"
    away = {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": url, "BUS_CONNECT_TIMEOUT_MS": "300"}
    said = run("tap", variables=away, expect=5).stderr
    assert "slipstream serve" in said
    assert "secret" not in said


def test_the_server_on_the_directory_is_found_and_the_doctor_says_so(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(data=tmp_path)
    found = run("doctor", variables={"SLIPSTREAM_DATA": str(tmp_path)}).stdout
    assert f"engine: http, because MESSAGE_BUS_DRIVER is not set and a server runs at {server.base}" in found
    assert found.endswith("http is well\n")


@in_loop
async def test_a_directory_that_an_application_has_open_is_no_problem(tmp_path: Path) -> None:
    async with open_bus(driver="embedded", data=str(tmp_path)):
        said = (await asyncio.to_thread(run, "doctor", variables={"SLIPSTREAM_DATA": str(tmp_path)})).stdout
    assert "engine: embedded, because MESSAGE_BUS_DRIVER is not set and no server runs here" in said
    assert "warning directory: the broker is inside an application" in said


@pytest.mark.parametrize("command", ["tap", "doctor"])
def test_settings_that_make_no_sense_are_named(command: str) -> None:
    pigeon = {"MESSAGE_BUS_DRIVER": "carrier-pigeon"}
    assert "MESSAGE_BUS_DRIVER='carrier-pigeon'" in run(command, variables=pigeon, expect=2).stderr
    assert "--driver" in run(command, "--driver", "carrier-pigeon", variables={}, expect=2).stderr
    assert "BUS_PREFIX" in run(command, "--driver", "http", "--prefix", "a b", variables={}, expect=2).stderr


# doctor


def test_an_engine_in_order_is_well(site: Site) -> None:
    said = run("doctor", "--prefix", "nobody-uses-this.", variables=site.environment()).stdout
    assert "ok      connection: " in said
    assert said.splitlines()[-1] == f"{site.driver} is well"
    found = json.loads(run("doctor", "--prefix", "nobody-uses-this.", "--json", variables=site.environment()).stdout)
    assert (found["driver"], found["verdict"]) == (site.driver, "ok")
    assert {"verdict", "what", "text"} == set(found["findings"][0])


@in_loop
async def test_dead_letters_are_a_warning_and_no_problem(site: Site) -> None:
    if site.driver == "pubsub":
        pytest.skip("Pub/Sub does not say how many messages there are")
    async with open_bus(**site.settings(), prefix="sick.") as bus:
        await _bury_one(bus)
    said = run("doctor", "--prefix", "sick.", variables=site.environment()).stdout
    assert "warning " in said
    assert "orders.DLQ" in said
    assert said.splitlines()[-1] == f"{site.driver} works, with 1 warning"
    found = json.loads(run("doctor", "--prefix", "sick.", "--json", variables=site.environment()).stdout)
    assert found["verdict"] == "warning"


async def _bury_one(bus: Bus) -> None:
    async def refuse(message: Message) -> None:
        raise Reject("nobody wants it")

    letters = Recorder()
    await bus.subscribe("orders.DLQ", "undertaker", letters)
    await bus.subscribe("orders", "g", refuse)
    await bus.publish("orders", "a")
    await letters.have(1)


@pytest.mark.parametrize("variable", [{"SLIPSTREAM_URL": "http://127.0.0.1:9"}, {"NATS_URL": "nats://127.0.0.1:9"}])
def test_an_engine_that_is_away_is_a_problem_of_the_connection(variable: dict[str, str]) -> None:
    driver = "nats" if "NATS_URL" in variable else "http"
    away = {"MESSAGE_BUS_DRIVER": driver, "BUS_CONNECT_TIMEOUT_MS": "300", **variable}
    said = run("doctor", variables=away, expect=5).stdout
    assert "problem connection: " in said
    assert said.splitlines()[-1] == f"1 problem on {driver}"
    if driver == "http":
        said = run("doctor", variables={**away, "MESSAGE_BUS_DRIVER": ""}, expect=5).stdout
        assert "engine: http, because SLIPSTREAM_URL is set\n" in said, "which says of no server that it runs"
    assert json.loads(run("doctor", "--json", variables=away, expect=5).stdout)["verdict"] == "problem"


def test_a_directory_that_another_process_has_is_a_problem(tmp_path: Path) -> None:
    site = HttpSite()
    with contextlib.closing(site):
        taken = {"SLIPSTREAM_DATA": str(site.server.data)}
        said = run("doctor", "--driver", "embedded", variables=taken, expect=1).stdout
    assert "problem" in said
