"""`slipstream bus dlq`, on engines that really run, and `slipstream dlq` where the bus is NATS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import rich_click
from click.testing import CliRunner, Result

from slipstream.bus import Message, Reject, open_bus
from slipstream.cli import main
from tests.bus.recorder import Recorder
from tests.bus.sites import shared_site
from tests.bus.sites.site import Site
from tests.cli.test_bus import environment
from tests.run_services import RunServices

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["http", "nats"])
def site(request: pytest.FixtureRequest, services: RunServices) -> Iterator[Site]:
    made = shared_site(request.param, services)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"orders-{os.getpid()}-{next(_numbers)}"


def run(*arguments: str, site: Site, expect: int = 0, answer: str = "", **given: str) -> Result:
    ours = {name: None for name in os.environ if name not in environment()}
    with ThreadPoolExecutor(1) as thread:
        variables = {**ours, **site.environment(), "NO_COLOR": "1", "COLUMNS": "200", **given}
        ended = thread.submit(CliRunner().invoke, main, arguments, input=answer, env=variables).result()
    assert ended.exit_code == expect, f"{ended.exit_code}\n{ended.output}\n{ended.exception!r}"
    return ended


def lines(*arguments: str, site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", site=site).stdout.splitlines()]


def bury(site: Site, topic: str, *bodies: str) -> None:
    async def bury_them() -> None:
        async def refuse(message: Message) -> None:
            raise Reject(f"no customer for {message.text}")

        dead = Recorder()
        async with open_bus(**site.settings()) as bus:
            await bus.subscribe(f"{topic}.DLQ", "watch", dead)
            await bus.subscribe(topic, "shipping", refuse)
            for body in bodies:
                await bus.publish(topic, body, {"customerId": "C-17"}, "user:1")
            await dead.have(len(bodies))

    asyncio.run(bury_them())


def stored(site: Site, topic: str) -> list[bytes]:
    async def read() -> list[bytes]:
        async with open_bus(**site.settings()) as bus:
            return [each.data async for each in bus.read(topic)]

    return asyncio.run(read())


def test_dead_letters_are_listed_shown_sent_back_and_discarded(site: Site, topic: str) -> None:
    bury(site, topic, "one", "two", "three")
    first, second, third = lines("bus", "dlq", "list", topic, site=site)
    place = f"{first['topic']}/{first['partition']}/{first['offset']}"
    assert (first["origin"], first["group"], first["reason"]) == (topic, "shipping", "no customer for one")
    assert place in run("bus", "dlq", "list", topic, "--error", "FOR ONE", site=site).output
    shown = run("bus", "dlq", "show", place, site=site).output
    assert "attribute customerId" in shown
    assert shown.rstrip().endswith("one")
    dry = run("bus", "dlq", "redrive", topic, "-m", place, "--dry-run", site=site)
    assert "1 dead letter would be sent back" in dry.output
    refused = run("bus", "dlq", "redrive", topic, "-m", place, site=site, answer="n\n", expect=1)
    assert f"Send 1 dead letter of {topic} to where they came from?" in refused.stderr
    run("bus", "dlq", "redrive", topic, "-m", place, "--yes", site=site)
    assert stored(site, topic) == [b"one", b"two", b"three", b"one"]
    assert "there is no dead letter at" in run("bus", "dlq", "show", place, site=site, expect=3).stderr
    other, third_place = (f"{each['topic']}/{each['partition']}/{each['offset']}" for each in (second, third))
    assert "1 dead letter discarded" in run("bus", "dlq", "discard", topic, "-m", other, "-y", site=site).output
    assert lines("bus", "dlq", "list", topic, site=site) == [third]
    refused = run("bus", "dlq", "discard", f"{topic}-other", "-m", third_place, "-y", site=site, expect=2)
    assert f"is a dead letter of {topic}, and not of {topic}-other" in refused.stderr
    answered = lines("bus", "dlq", "redrive", topic, "--to", f"{topic}.later", "-y", site=site)
    assert answered == [{"redriven": 1, "dry_run": False}]
    assert stored(site, f"{topic}.later") == [b"three"]
    assert "no dead letters" in run("bus", "dlq", "list", topic, site=site).output


def test_a_topic_that_does_not_exist_is_not_found(site: Site, topic: str) -> None:
    for command in (["list"], ["redrive", "-y"], ["discard", "-y"]):
        missing = run("bus", "dlq", *command, topic, site=site, expect=3)
        assert f"there is no topic {topic}" in missing.stderr


def test_what_another_handled_while_the_question_was_open_is_not_sent(
    site: Site, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(site, topic, "one", "two")

    def confirm(question: str, **how: object) -> None:
        asyncio.run(redrive_first())

    async def redrive_first() -> None:
        async with open_bus(**site.settings()) as bus, contextlib.aclosing(bus.dead_letters.list(topic)) as letters:
            await bus.dead_letters.redrive(await anext(letters), f"{topic}.later")

    monkeypatch.setattr(rich_click, "confirm", confirm)
    assert "1 dead letter sent back" in run("bus", "dlq", "redrive", topic, site=site).output
    assert stored(site, topic) == [b"one", b"two", b"two"]


def test_core_nats_keeps_no_dead_letters(site: Site) -> None:
    if site.driver == "nats":
        core = {**site.environment(), "NATS_JETSTREAM": "false"}
        assert "keeps no log" in run("bus", "dlq", "list", site=site, expect=1, **core).stderr


def test_dlq_means_the_dead_letters_of_nats_where_that_is_the_bus(site: Site, topic: str) -> None:
    if site.driver != "nats":
        pytest.skip("with a server, `slipstream dlq` is about its own dead letters")
    bury(site, topic, "one")
    (letter,) = lines("dlq", "list", topic, site=site)
    place = f"{letter['topic']}/{letter['partition']}/{letter['offset']}"
    assert "no customer for one" in run("dlq", "show", place, site=site).output
    assert "1 dead letter sent back" in run("dlq", "redrive", topic, "--yes", site=site).output
    run("dlq", "list", topic, "--server", "http://127.0.0.1:9", site=site, expect=5)
    assert "discard" in run("dlq", "--help", site=site).output


def test_a_tap_of_a_dead_letter_topic_shows_what_lies_there(site: Site, topic: str) -> None:
    bury(site, topic, "one", "two")
    shown = run("bus", "tap", f"{topic}.DLQ", "-n", "2", site=site).stdout.splitlines()
    assert [("one" in line, "two" in line) for line in shown] == [(True, False), (False, True)]


def test_the_doctor_names_the_command_for_dead_letters(site: Site, topic: str) -> None:
    bury(site, topic, "one")
    found = run("bus", "doctor", site=site).output
    if site.driver == "nats":
        assert f"slipstream bus dlq list {topic}.DLQ" in found


def test_where_a_place_is_none_it_says_so(site: Site, tmp_path: Path) -> None:
    assert "is no place" in run("bus", "dlq", "show", "orders", site=site, expect=2).stderr
