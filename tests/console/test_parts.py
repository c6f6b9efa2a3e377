"""The parts that `slipstream up` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.parts import PartsFile
from slipstream.up import PartStatus
from slipstream.up.board import is_current, write
from slipstream.up.lock import locked
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening


@in_loop
async def test_parts_are_read_as_the_supervisor_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    status = PartStatus(name="broker", state="running", pid=7, url="http://127.0.0.1:1", restarts=2, log=["hello"])
    write(path, [status])
    sources = Sources(Numbers(), parts=PartsFile(str(path), is_current))
    with locked(tmp_path, patience_s=0, wait=lambda: None):
        async with listening(create_console(sources)) as url:
            code, answer, _ = await ask(f"{url}/v2/parts")
    assert code == 200
    (part,) = answer["parts"]
    assert (part["name"], part["state"], part["pid"], part["restarts"]) == ("broker", "running", 7, 2)
    assert (part["url"], part["log"]) == ("http://127.0.0.1:1", ["hello"])


@in_loop
async def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert await PartsFile("", is_current).read() == []
    assert await PartsFile(str(tmp_path / "parts.json"), is_current).read() == []


@in_loop
async def test_when_the_supervisor_is_gone_nothing_of_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    write(path, [PartStatus(name="broker", state="running", pid=7)])
    (part,) = await PartsFile(str(path), is_current).read()
    assert (part.state, part.pid, part.reason) == ("stopped", None, "slipstream up does not run any more")


@in_loop
async def test_a_file_that_says_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    path.write_text('{"parts": [{"name": 7}]}')
    with pytest.raises(Refused, match=r"parts\.json does not say which parts run"):
        await PartsFile(str(path), is_current).read()
