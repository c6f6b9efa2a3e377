"""A table that follows its file."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from slipstream.slip.routes import watch
from slipstream.slip.routes.problems import RouteTableInvalid
from slipstream.slip.routes.table import RouteTable
from slipstream.slip.routes.watch import WatchedRoutes
from tests.client.loop import in_loop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "routes.yaml"
    write(path, "first")
    return path


def write(path: Path, event_type: str) -> None:
    path.write_text(f"routes: {{{event_type}: {{steps: [a]}}}}\n")


def state(routes: WatchedRoutes) -> tuple[tuple[str, ...], int, str | None]:
    return routes.table.types, routes.version, routes.problem


@in_loop
async def test_a_changed_file_is_another_table(path: Path) -> None:
    routes = WatchedRoutes(path)
    old = routes.table
    assert (old.types, routes.version, await routes.check()) == (("first",), 1, False)
    write(path, "another")
    assert await routes.check()
    assert state(routes) == (("another",), 2, None)
    assert old.types == ("first",), "whoever plans with it is not disturbed"
    assert not await routes.check()
    assert routes.version == 2


@in_loop
async def test_a_file_of_the_same_size_and_age_that_took_its_place_is_noticed(path: Path) -> None:
    routes = WatchedRoutes(path)
    beside = path.with_name("new")
    write(beside, "tsrif")
    before = path.stat()
    os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
    beside.replace(path)
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    assert await routes.check()
    assert routes.table.types == ("tsrif",)


@in_loop
async def test_a_file_that_is_wrong_is_reported_once_and_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, watch.__name__)
    routes = WatchedRoutes(path)
    path.write_text("routes:\n  broken: {steps: []}\n")
    for _ in range(3):
        assert not await routes.check()
    assert (routes.table.types, routes.version) == (("first",), 1)
    assert routes.problem == f"{path}:2: routes.broken.steps: there are no steps"
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert routes.problem in record.getMessage()
    path.write_text("routes: [\n")
    assert not await routes.check()
    assert len(caplog.records) == 2, "another version of the file, another line"
    write(path, "mended")
    assert await routes.check()
    assert state(routes) == (("mended",), 2, None)


@in_loop
async def test_a_file_that_is_gone_is_waited_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    routes = WatchedRoutes(path)
    path.unlink()
    for _ in range(2):
        assert not await routes.check()
    assert routes.table.types == ("first",)
    assert routes.problem is not None
    assert "No such file" in routes.problem
    assert len(caplog.records) == 1
    write(path, "back")
    assert await routes.check()
    assert state(routes) == (("back",), 2, None)


@in_loop
async def test_a_file_that_changes_while_it_is_read_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = WatchedRoutes(path)
    load = RouteTable.load

    def load_and_change(read: Path) -> RouteTable:
        table = load(read)
        monkeypatch.undo()
        write(path, "while-read")
        return table

    monkeypatch.setattr(RouteTable, "load", load_and_change)
    write(path, "second")
    assert await routes.check()
    assert routes.table.types == ("second",)
    assert await routes.check()
    assert routes.table.types == ("while-read",)


@in_loop
async def test_nothing_that_goes_wrong_ends_the_watching(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = WatchedRoutes(path)

    def fail(_: Path) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(RouteTable, "load", fail)
    write(path, "second")
    assert not await routes.check()
    assert routes.problem == "MemoryError: no room"


def test_nobody_starts_with_a_file_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RouteTableInvalid, match="cannot be read"):
        WatchedRoutes(tmp_path / "routes.yaml")


@in_loop
async def test_the_loop_looks_until_it_is_cancelled(path: Path) -> None:
    routes = WatchedRoutes(path, interval_s=0)
    looked = asyncio.Event()
    check, count = routes.check, 0

    async def counted() -> bool:
        nonlocal count
        count += 1
        if count == 3:
            looked.set()
        return await check()

    routes.check = counted  # type: ignore[method-assign]
    watching = asyncio.create_task(routes.run())
    write(path, "second")
    await asyncio.wait_for(looked.wait(), 30)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert routes.table.types == ("second",)
