"""The broker that buses share, or do not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import BusUnavailable
from slipstream.bus.drivers.embedded.broker import _brokers, _closing
from slipstream.bus.opening import Opening, open_bus
from slipstream.store.lock import DirectoryLock
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop

HOLD = """
import sys
from pathlib import Path
from slipstream.store.lock import DirectoryLock

lock = DirectoryLock(Path(sys.argv[1]))
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def embedded(data: object, **given: Any) -> Opening:
    return open_bus(driver="embedded", data=str(data), registry=CollectorRegistry(), **given)


@in_loop
async def test_two_buses_of_a_process_share_a_directory(tmp_path: Path) -> None:
    async with embedded(tmp_path / "data") as one:
        async with embedded(tmp_path / "data") as other:
            handler = Recorder()
            await one.subscribe("orders", "shipping", handler)
            await other.publish("orders", b"x")
            await handler.have(1)
            assert one.native is other.native
        await one.publish("orders", b"after the other was closed")
        await handler.have(2)


@in_loop
async def test_a_directory_that_another_process_has_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with embedded(data):
        pass
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(data), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(BusUnavailable, match=f"in use by process {holder.pid}"):
        await embedded(data)
    holder.stdin.close()
    await holder.wait()
    async with embedded(data):
        pass


@in_loop
async def test_a_directory_that_another_loop_of_the_process_has_is_refused(tmp_path: Path) -> None:
    async def open_there() -> None:
        await embedded(tmp_path / "data")

    async with embedded(tmp_path / "data"):
        with pytest.raises(BusUnavailable, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(open_there()))


@in_loop
async def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BusUnavailable, match="not a data directory"):
        await embedded(tmp_path)


@in_loop
async def test_a_directory_that_is_damaged_says_how_to_mend_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with embedded(data) as bus:
        await bus.publish("orders", b"x" * 1000)
        await bus.publish("orders", b"y" * 1000)
    (journal,) = data.glob("journal-*")
    content = bytearray(journal.read_bytes())
    content[content.index(b"x" * 1000) + 500] ^= 1
    journal.write_bytes(content)
    with pytest.raises(BusUnavailable, match="slipstream doctor"):
        await embedded(data)
    # It has let go of the directory: whoever mends it can open it.
    journal.rename(tmp_path / "set-aside")
    async with embedded(data):
        pass


@in_loop
async def test_memory_is_everybodys_own_unless_it_has_a_name() -> None:
    async with embedded(":memory:") as one, embedded(":memory:") as other:
        assert one.native is not other.native
    async with embedded(":memory:shared") as one, embedded(":memory:shared") as other:
        assert one.native is other.native
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder()
        await bus.subscribe("orders", "shipping", handler)
        await bus.publish("orders", b"x")
        await handler.have(1)
        assert bus.driver == "memory"


@in_loop
async def test_a_message_that_kills_its_process_is_counted(tmp_path: Path) -> None:
    """Even where it does so at once: the attempt is in the journal before the handler runs."""
    data = str(tmp_path / "data")
    async with embedded(data) as bus:
        await bus.publish("orders", b"poison")
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, data, env={**os.environ, "PYTHONPATH": "src"}
        )
        assert await process.wait() == 7
    async with embedded(data) as bus:
        dead, handler = Recorder(), Recorder()
        await bus.subscribe("orders.DLQ", "undertaker", dead)
        await bus.subscribe("orders", "shipping", handler, max_deliver=2)
        (letter,) = await dead.have(1)
    assert handler.messages == []
    assert letter.attributes["deadLetterAttempts"] == "3"


@in_loop
async def test_who_gives_up_opening_leaves_nothing_open(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opening = asyncio.ensure_future(embedded(data)._open())
    while not _brokers:
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    while _closing:
        await asyncio.sleep(0.01)
    DirectoryLock(data).release()  # nobody has it


@in_loop
async def test_a_directory_that_is_just_being_closed_is_waited_for(tmp_path: Path) -> None:
    first = await embedded(tmp_path / "data")
    closing = asyncio.ensure_future(first.close())
    while _brokers:
        await asyncio.sleep(0)
    async with embedded(tmp_path / "data") as second:
        await second.publish("orders", b"x")
    await closing


@in_loop
async def test_what_could_not_be_opened_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BusUnavailable):
        await embedded(tmp_path)
    assert not _brokers


KILLED = """
import asyncio, os, sys
from slipstream.bus import open_bus

async def main():
    bus = await open_bus(driver="embedded", data=sys.argv[1])
    await bus.subscribe("orders", "shipping", lambda message: os._exit(7), ack_deadline=0.5)
    await asyncio.Event().wait()

asyncio.run(main())
"""
