"""An event of a type that no running router has a route for is refused where it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.bus import open_bus
from slipstream.slip import (
    Control,
    Envelope,
    Event,
    InvalidSlip,
    Itinerary,
    Router,
    RouteTable,
    RoutingStep,
    SlipSettings,
    Status,
    clock,
    open_store,
)
from slipstream.slip.control import QUEUE
from slipstream.slip.event import decode
from slipstream.slip.known_types import LIVE_MS, KnownTypes, check_type
from slipstream.slip.store import Store
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop, until
from tests.slip.lab import fast


def routes(*types: str) -> RouteTable:
    return RouteTable.of({"routes": {name: {"steps": ["ship"]} for name in types}})


async def waiting(store: Store) -> int:
    return len(await store.due(QUEUE, clock.now_ms(), limit=10, lease_ms=1))


@in_loop
async def test_a_type_without_a_route_is_refused_while_a_router_runs(tmp_path: Path) -> None:
    settings = fast(store=str(tmp_path / "slips.db"))
    router = Router(routes("order.v1", "loan.*"))

    @router.planner("refund.*")
    def plan(event: Event, itinerary: Itinerary) -> None:
        """Leave the itinerary as it is: the planner counts as a route."""

    async with open_store(settings.store) as store:
        control = Control(store, settings)
        await control.submit(Event(Envelope("1", "test", "c-0"), "odrer.v1", {}))
        assert await waiting(store) == 1, "no router runs that could know: the event waits for one"
        async with open_bus(driver="memory") as bus, router.running(bus, store, settings):
            for event_type in ("order.v1", "loan.small.v1", "refund.v1"):
                await check_type(store, event_type)
            with pytest.raises(InvalidSlip) as refused:
                await control.submit(Event(Envelope("1", "test", "c-1"), "odrer.v1", {}))
            assert str(refused.value) == (
                "no router has a route for events of type 'odrer.v1' (did you mean order.v1?); there are routes for "
                "loan.*, order.v1, refund.*: correct the type, or add a route"
            )
            own = (RoutingStep("pack", Status.PENDING, next_topic="internal.pack.v1"),)
            await control.submit(Event(Envelope("1", "test", "c-2", routing_slip=own), "odrer.v1", {}))
            packed = Recorder()
            await bus.subscribe("internal.pack.v1", "pack", packed)
            assert decode((await packed.have(1))[0].data).type == "odrer.v1", "it needs no route"
        await check_type(store, "odrer.v1")


@in_loop
async def test_every_router_counts_until_it_is_silent_and_new_routes_count_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    async with open_store(SlipSettings(store=str(tmp_path / "slips.db")).store) as store:
        types: tuple[str, ...] = ("order.v1",)
        killed = KnownTypes(store, lambda: ("loan.v1",), check_s=0.01)
        await killed.publish()
        now_ms += LIVE_MS - 1
        at_work = KnownTypes(store, lambda: types, check_s=0.01)
        await at_work.publish()
        for event_type in ("order.v1", "loan.v1"):
            await check_type(store, event_type)
        now_ms += 1
        with pytest.raises(InvalidSlip, match=r"there are routes for order\.v1:"):
            await check_type(store, "loan.v1")
        await at_work.publish()
        assert len(await store.facts("routers")) == 1, "the entry of the killed router is removed"


@in_loop
async def test_a_changed_table_is_published_when_it_is_loaded(tmp_path: Path) -> None:
    settings = fast(store=str(tmp_path / "slips.db"))
    file = tmp_path / "routes.toml"
    file.write_text('version = 1\n[routes."order.v1"]\nsteps = ["ship"]\n')
    async with (
        open_store(settings.store) as store,
        open_bus(driver="memory") as bus,
        Router(file).running(bus, store, settings),
    ):
        with pytest.raises(InvalidSlip):
            await check_type(store, "loan.v1")
        file.write_text('version = 1\n[routes."order.v1"]\nsteps = ["ship"]\n[routes."loan.v1"]\nsteps = ["ship"]\n')

        async def is_known() -> bool:
            try:
                await check_type(store, "loan.v1")
            except InvalidSlip:
                return False
            return True

        await until(is_known)
