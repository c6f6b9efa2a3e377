"""Routers and workers as programs: inside another, and by themselves until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from slipstream.bus import Message
from slipstream.slip import Router, Work, Worker, serving, submit
from tests.client.loop import in_loop
from tests.forked import Forked
from tests.slip.lab import fast, table

PROGRAM = """\
import asyncio
import contextlib

from slipstream.slip import Router, RouteTable, Worker, run

worker = Worker()


@worker.step("charge")
def charge(work):
    pass


class Last:
    @contextlib.asynccontextmanager
    async def running(self, bus, store, settings):
        asyncio.get_running_loop().call_soon(lambda: print("begun", flush=True))  # when it waits for its end
        yield


run(Router(RouteTable.of({"routes": {"order.v1": {"steps": ["charge"]}}})), worker, Last())
print("ended", flush=True)
"""


@in_loop
async def test_a_program_serves_while_it_does_something_else() -> None:
    worker = Worker()
    came: asyncio.Queue[Any] = asyncio.Queue()

    @worker.step("charge")
    async def charge(work: Work) -> dict[str, Any]:
        return {"reply": "paid"}

    async def keep(message: Message) -> None:
        await came.put(message.json())

    async with serving(Router(table("charge")), worker, settings=fast(store=":memory:"), driver="memory") as bus:
        await bus.subscribe("replies", "test", keep)
        await submit(bus, "order.v1", {}, source="test", reply_to="replies")
        assert (await came.get())["payload"] == {"reply": "paid"}


def test_a_service_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(PROGRAM)
    with Forked([sys.executable, "service.py"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    assert (said, process.returncode) == ("ended\n", 0)
