"""The page of the bus: what it shows runs, and its tables are those of the code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import SubscribeOptions
from slipstream.bus.metrics import metrics_in
from slipstream.bus.settings import describe_settings
from tests.client.loop import in_loop
from tests.docs.examples import examples, run_fragment, run_program
from tests.docs.pages import BUS, TOUR, blocks, rows, section
from tests.server_process import ServerProcess


async def a_dead_letter_of(bus: Any) -> None:
    """Wait until the message that an earlier fragment rejects has become a dead letter."""
    async with asyncio.timeout(30):
        while not [letter async for letter in bus.dead_letters.list("orders")]:
            await asyncio.sleep(0.05)


@in_loop
async def test_the_fragments_run_and_print_what_stands_there(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGE_BUS_DRIVER", "http")
    monkeypatch.setenv("SLIPSTREAM_URL", server.base)
    namespace: dict[str, object] = {}
    for example in examples(BUS):
        if example.language == "python":
            if "bus.dead_letters.list" in example.text:
                await a_dead_letter_of(namespace["bus"])
            await run_fragment(example, BUS, server, namespace)
    await namespace["bus"].close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("page", "name"), [(BUS, "orders"), (TOUR, "shipping")])
def test_the_program_runs_without_a_server(tmp_path: Path, page: Path, name: str) -> None:
    (program,) = [block for block in blocks(page, "python") if block.startswith(f"# {name}.py\n")]
    printed = run_program(program, tmp_path / f"{name}.py")
    assert printed.startswith("shipping two books")
    if page is BUS:
        assert printed in blocks(page, "console")[0]


def test_every_setting_is_in_the_table_as_it_is() -> None:
    shown = {row[0]: row[1:] for row in rows(section(BUS, "Configuration"))}
    for info in describe_settings():
        default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
        assert shown.pop(f"`{info.variable}`") == [f"`{info.name}`", f"`{default}`" if default else "", info.text]
    assert not shown


def test_every_option_is_in_the_table() -> None:
    names = {name for row in rows(section(BUS, "Subscribing")) for name in [row[0].strip("`")]}
    assert set(SubscribeOptions.__struct_fields__) <= names


def test_every_metric_is_in_the_table() -> None:
    registry = CollectorRegistry()
    metrics_in(registry)
    there = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert {row[0].strip("`") for row in rows(section(BUS, "Metrics"))} == there
