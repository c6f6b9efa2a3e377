"""The permissions that the documentation gives to each role, on a real server that has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.bus import Bus, Unauthorized, open_bus
from slipstream.bus.opening import Opening
from slipstream.slip import Router, Work, Worker, open_store, submit
from slipstream.slip.topics import EGRESS
from tests.bus.recorder import Recorder
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop
from tests.slip.lab import fast, table

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "nats-cluster.md"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsSite]:
    """A server with the configuration of the page."""
    (block,) = re.findall(r"```text\n(jetstream: enabled\n.*?)```", PAGE.read_text(), re.DOTALL)
    config = tmp_path_factory.mktemp("guarded") / "nats.conf"
    config.write_text(block)
    site = NatsSite("-c", str(config))
    yield site
    site.close()


def acting_as(site: NatsSite, role: str, *, ensure: bool = False) -> Opening:
    url = f"nats://{role}:change-me@127.0.0.1:{site.port}"
    return open_bus(driver="nats", nats_url=url, ensure=ensure, connect_timeout_ms=2_000)


def charging() -> Worker:
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> dict[str, str]:
        return {"reply": "paid"}

    return worker


async def provision(bus: Bus) -> None:
    """As an operator would: the application is started once with rights to make what it needs."""
    async with (
        open_store(":memory:") as store,
        Router(table("charge")).running(bus, store, fast()),
        charging().running(bus, store, fast()),
    ):
        await bus.ensure_topic(EGRESS)
        await bus.ensure_topic("internal.deadletter.v1")


@in_loop
async def test_a_slip_is_done_by_roles_that_may_do_no_more_than_they_need(guarded: NatsSite) -> None:
    async with (
        acting_as(guarded, "operator", ensure=True) as operator,
        acting_as(guarded, "producer") as producer,
        acting_as(guarded, "router") as routing,
        acting_as(guarded, "charge") as charge,
        open_store(":memory:") as store,
    ):
        await provision(operator)
        delivered = Recorder()
        await operator.subscribe(EGRESS, "delivery", delivered)
        async with Router(table("charge")).running(routing, store, fast()), charging().running(charge, store, fast()):
            await submit(producer, "order.v1", {}, source="test")
            (message,) = await delivered.have(1)
        assert message.json()["payload"]["reply"] == "paid"
        with pytest.raises(Unauthorized, match="no permission"):
            await producer.publish(EGRESS, b"forged")
        with pytest.raises(Unauthorized, match="no permission"):
            await charge.publish(EGRESS, b"forged")
        with pytest.raises(Unauthorized, match=r"CONSUMER\.INFO"):
            await charge.subscribe("internal.router.v1", "router", Recorder())


@in_loop
async def test_downloads_need_the_subjects_of_jobs_only(guarded: NatsSite) -> None:
    async with acting_as(guarded, "operator", ensure=True) as operator, acting_as(guarded, "jobs") as jobs:
        for topic in ("fetchbox.jobs.tasks", "fetchbox.jobs.logs", "internal.ingress.v1"):
            await operator.ensure_topic(topic)
        await operator.ensure_group("fetchbox.jobs.tasks", "workers")
        handler = Recorder()
        await jobs.subscribe("fetchbox.jobs.tasks", "workers", handler)
        await jobs.publish("fetchbox.jobs.tasks", b"task")
        await handler.have(1)
        await jobs.publish("fetchbox.jobs.logs", b"line")
        assert [stored.data async for stored in jobs.read("fetchbox.jobs.logs")] == [b"line"]
        with pytest.raises(Unauthorized):
            await jobs.publish("internal.ingress.v1", b"x")
