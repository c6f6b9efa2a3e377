"""What is logged while a message is handled says of which, whoever logs it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Message, open_bus
from slipstream.cli.logs import JsonFormatter, TextFormatter
from slipstream.slip import StepFailed, Work, Worker
from tests.jobs.lab import laboratory
from tests.slip.lab import lab, table

APPLICATION = logging.getLogger("shop")


class Lines(logging.Handler):
    """Formatted where they are logged, as a handler of standard error does."""

    def __init__(self) -> None:
        super().__init__()
        self.json: list[dict[str, Any]] = []
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.json.append(json.loads(JsonFormatter().format(record)))
        self.text.append(TextFormatter(in_colour=False).format(record))

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.json if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, loggers = Lines(), [logging.getLogger("slipstream.slip"), logging.getLogger("slipstream.bus"), APPLICATION]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def shop() -> Worker:
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        APPLICATION.info("charging")
        if work.attempt == 0:
            raise StepFailed("busy", "the bank does not answer")

    @worker.step("ship")
    def ship(work: Work) -> dict[str, str]:
        APPLICATION.info("shipping, in a thread")
        return {"reply": "done"}

    return worker


def test_lines_of_a_slip_have_correlation_id_step_and_attempt_also_those_of_the_application(lines: Lines) -> None:
    async def run() -> None:
        async with (
            open_bus(driver="memory", registry=CollectorRegistry()) as bus,
            lab(bus, table("charge", "ship"), shop()) as seen,
        ):
            await seen.submit(correlation_id="c-7")
            await seen.ended("c-7")

    asyncio.run(run())
    said = [(line["msg"], line["correlationId"], line["stepId"], line["attempt"]) for line in lines.of("shop")]
    assert said == [
        ("charging", "c-7", "charge", 0),
        ("charging", "c-7", "charge", 1),
        ("shipping, in a thread", "c-7", "ship", 0),
    ]
    assert {len(line["traceId"]) for line in lines.of("shop")} == {32}
    assert len({line["traceId"] for line in lines.of("shop")}) == 1
    transitions = [
        (line["level"], line["msg"], line["stepId"], line["attempt"]) for line in lines.of("slipstream.slip.station")
    ]
    assert transitions == [
        ("debug", "step charge: PENDING, and begun", "charge", 0),
        ("info", "step charge: ERROR, and PENDING once more: the bank does not answer", "charge", 0),
        ("debug", "step charge: PENDING, and begun", "charge", 1),
        ("debug", "step charge: from PENDING to OK", "charge", 1),
        ("debug", "step ship: PENDING, and begun", "ship", 0),
        ("debug", "step ship: from PENDING to OK", "ship", 0),
    ]
    (retried,) = [line for line in lines.text if "PENDING once more" in line]
    assert retried.endswith("the bank does not answer  [correlationId=c-7 stepId=charge attempt=0]")


def test_lines_of_a_handler_on_the_bus_have_correlation_id_and_attempt_and_others_have_none(lines: Lines) -> None:
    done = asyncio.Event

    async def run() -> None:
        handled = done()

        async def handle(message: Message) -> None:
            APPLICATION.warning("at %s", message.data.decode())
            if message.attempt == 2:
                handled.set()
                return
            raise ValueError("once more")

        async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
            await bus.subscribe("orders", "shop", handle, backoff=[0.01])
            await bus.publish("orders", "one", {"correlationId": "c-1"})
            async with asyncio.timeout(30):
                await handled.wait()
        APPLICATION.info("over")

    asyncio.run(run())
    assert [(line["msg"], line.get("correlationId"), line.get("attempt")) for line in lines.of("shop")] == [
        ("at one", "c-1", 1),
        ("at one", "c-1", 2),
        ("over", None, None),
    ]
    (failed,) = [line for line in lines.json if line["level"] == "error"]
    assert (failed["correlationId"], failed["attempt"]) == ("c-1", 1)
    assert "ValueError: once more" in failed["exception"]
    (shown,) = [text for text in lines.text if "ValueError" in text]
    assert shown.splitlines()[0].endswith("[correlationId=c-1 attempt=1]"), "and not behind the traceback"


def test_lines_of_a_download_have_job_and_resource(lines: Lines, tmp_path: Path) -> None:
    jobs = logging.getLogger("slipstream.jobs")
    jobs.addHandler(lines)
    jobs.setLevel(logging.DEBUG)

    async def run() -> str:
        async with laboratory(tmp_path) as seen:
            job_id = await seen.submit({"page": "http://169.254.0.1/"}, tenant="t")
            await seen.ended(job_id)
            return job_id

    try:
        job_id = asyncio.run(run())
    finally:
        jobs.removeHandler(lines)
        jobs.setLevel(logging.NOTSET)
    (buried,) = lines.of("slipstream.jobs.burials")
    assert {name: buried[name] for name in ("correlationId", "jobId", "resourceId", "attempt")} == {
        "correlationId": job_id,
        "jobId": job_id,
        "resourceId": "page",
        "attempt": 1,
    }


def test_a_name_that_would_be_an_order_to_a_terminal_is_shown_and_not_obeyed(lines: Lines) -> None:
    async def run() -> None:
        async def handle(message: Message) -> None:
            APPLICATION.info("at it")

        async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
            await bus.subscribe("orders", "shop", handle)
            await bus.publish("orders", "one", {"correlationId": "c-\x1b[2J\n1"})
            deadline = time.monotonic() + 30
            while not lines.of("shop"):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    asyncio.run(run())
    (shown,) = [text for text in lines.text if "at it" in text]
    assert shown.endswith(r"[correlationId=c-\x1b[2J\n1 attempt=1]")
    assert lines.of("shop")[0]["correlationId"] == "c-\x1b[2J\n1"


def test_half_a_character_costs_no_line() -> None:
    name = b"caf\xe9.txt".decode(errors="surrogateescape")
    record = logging.LogRecord("shop", logging.INFO, str(Path("shop.py")), 1, "stored %s", (name,), None)
    line = JsonFormatter().format(record)
    line.encode("ascii")
    assert json.loads(line)["msg"] == f"stored {name}"


def test_colours_are_for_terminals() -> None:
    record = logging.LogRecord("shop", logging.WARNING, str(Path("shop.py")), 1, "careful", None, None)
    assert TextFormatter(in_colour=True).format(record).endswith("careful\x1b[0m")
    assert "\x1b" not in TextFormatter(in_colour=False).format(record)
