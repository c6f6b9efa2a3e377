"""The server is killed, really and without warning, while clients work; then it is started again and asked."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from slipstream.broker import BrokerConfig
from slipstream.engine import Engine
from slipstream.store import Store, StoreConfig
from tests.chance import chance
from tests.conftest import StartServer
from tests.server_process import ServerProcess

PARTITIONS = 3
SMALL_JOURNAL = ("--journal-bytes", "16384", "--lease-ms", "300", "--retry-backoff-ms", "10")
"""Journal files so small that the kill also hits rotation, compaction and checkpoints."""


class Ledger:
    """What the clients know for certain."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored: set[str] = set()
        """The server said 200."""
        self.acked: set[str] = set()
        """The server said 204 to the ack."""
        self.uncertain_acks: set[str] = set()
        """The answer to the ack never came: it may count or not."""


@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_kills_under_load_lose_nothing_and_repeat_nothing_finished(
    start_server: StartServer, tmp_path: Path, rounds: int
) -> None:
    dice = chance()
    ledger = Ledger()
    server = start_server(*SMALL_JOURNAL)
    server.create("t", PARTITIONS)
    for number in range(rounds):
        asyncio.run(_work_until_killed(server, ledger, dice.uniform(0.05, 0.5)))
        story = f"round {number}"
        _check_log(server.data, ledger, story)
        # Within so short a life a compaction process hardly gets to work; a compaction thread does.
        where = "--compaction-process" if number % 3 == 0 else "--no-compaction-process"
        server.arguments = (*SMALL_JOURNAL, where)
        server.start()
    assert len(ledger.stored) > rounds, "the load was no load"
    assert list(tmp_path.glob("data/segments/*/*/*.arrow")), "no kill can have met a compaction"
    _drain(server, ledger, "at the end")


async def _work_until_killed(server: ServerProcess, ledger: Ledger, seconds: float) -> None:
    async with httpx.AsyncClient(base_url=server.base, timeout=5) as client:
        work = [asyncio.create_task(_produce(client, ledger)) for _ in range(6)]
        work += [asyncio.create_task(_consume(client, ledger, f"worker-{n}")) for n in range(2)]
        await asyncio.sleep(seconds)  # the kill comes at a moment that has nothing to do with the work
        server.crash()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _produce(client: httpx.AsyncClient, ledger: Ledger) -> None:
    while True:
        ledger.sent += 1
        value = f"m{ledger.sent}"
        response = await client.post("/v1/produce", json={"topic": "t", "key": value, "value": value})
        assert response.status_code == 200, response.text
        ledger.stored.add(value)


async def _consume(client: httpx.AsyncClient, ledger: Ledger, owner: str) -> None:
    query = {"topic": "t", "group": "workers", "owner": owner}
    async with client.stream("GET", "/v1/consume", params=query, timeout=None) as stream:
        async for line in stream.aiter_lines():
            item = json.loads(line)
            assert item["value"] not in ledger.acked, f"{item} came again after its ack was answered"
            ledger.uncertain_acks.add(item["value"])
            body = {"topic": "t", "group": "workers", "owner": owner}
            response = await client.post(
                "/v1/ack", json=body | {"partition": item["partition"], "offset": item["offset"]}
            )
            if response.status_code == 204:
                ledger.acked.add(item["value"])
            else:
                # The lease ran out while the server was busy, and another worker has it now.
                assert response.status_code == 409, response.text


def _check_log(data: Path, ledger: Ledger, story: str) -> None:
    """Reads the directory the way a start does, and looks at every message in it."""
    store = Store(data, StoreConfig())
    try:
        engine = Engine(BrokerConfig(), store)
        engine.recover()
        topic = engine.broker.state.topics["t"]
        offsets = Counter[int]()
        values = Counter[str]()
        for partition in topic.partitions:
            for index in range(partition.count):
                record = partition.log.read(index)
                values[record.value.decode()] += 1
                offsets[record.offset] += 1
        twice = [value for value, count in values.items() if count > 1]
        assert not twice, f"{story}: stored twice: {twice[:5]}"
        assert max(offsets.values(), default=1) == 1, f"{story}: an offset was used twice"
        missing = ledger.stored - set(values)
        assert not missing, f"{story}: {len(missing)} acknowledged messages are gone: {sorted(missing)[:5]}"
        group = topic.groups.get("workers")
        unfinished = {
            progress.partition.log.read(index).value.decode()
            for progress in (group.progress if group else [])
            for index in [
                *(lease.index for lease in progress.leases.values()),
                *(lease.index for lease in progress.postponed.values()),
                *range(progress.position, progress.partition.count),
            ]
        }
        revived = unfinished & ledger.acked
        assert not revived, f"{story}: acknowledged acks were forgotten: {sorted(revived)[:5]}"
        forgotten = ledger.stored - unfinished - ledger.uncertain_acks - ledger.acked if group else set()
        assert not forgotten, f"{story}: never acked, and would not come again: {sorted(forgotten)[:5]}"
    finally:
        store.close()


def _drain(server: ServerProcess, ledger: Ledger, story: str) -> None:
    """Everything that was never acked comes again, and nothing that was."""
    waiting = {value for value in ledger.stored if value not in ledger.acked and value not in ledger.uncertain_acks}
    seen: set[str] = set()
    with server.consume("t", group="workers", owner="drain") as items:
        while waiting - seen:
            item = next(items)
            assert item["value"] not in ledger.acked, f"{story}: {item} was acked and came again"
            seen.add(item["value"])
            assert server.ack("t", item, group="workers", owner="drain").status_code in {204, 409}
