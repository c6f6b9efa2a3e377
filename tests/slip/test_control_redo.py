"""What was undone and is done again is done anew: what was written down of the first time does not count."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.bus.opening import Opening
from slipstream.slip import Control, Reject, Work, Worker
from tests.client.loop import in_loop
from tests.slip.lab import lab, table

OpenBus = Callable[[], Opening]


class Shop:
    """Charges and refunds, and ships when it can. A bank takes the same key for the same charge."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunded: list[str] = []
        self.failing: set[str] = {"ship"}
        self.worker = Worker()

        @self.worker.step("charge")
        async def charge(work: Work) -> None:
            receipt = await work.once("charge", lambda: self._charge(work.idempotency_key("charge")))
            self._may_fail("charge")
            work.undo_with(receipt)

        @self.worker.undo("charge")
        async def refund(work: Work) -> None:
            self.refunded.append(work.record)

        @self.worker.step("ship")
        async def ship(work: Work) -> None:
            self._may_fail("ship")

    def _charge(self, key: str) -> str:
        if key not in self.charged:
            self.charged.append(key)
        return key

    def _may_fail(self, step: str) -> None:
        if step in self.failing:
            raise Reject("not today")


@in_loop
async def test_a_charge_that_was_refunded_is_made_again_by_a_rerun(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, table("charge", "ship"), shop.worker) as made:
        await made.submit()
        await made.ended()
        assert (len(shop.charged), shop.refunded) == (1, shop.charged)
        control = Control(made.store, made.settings)
        await control.rerun("c-1", "charge")
        await made.ended(run=1)
        assert len(shop.charged) == 2
        assert shop.refunded == shop.charged
        shop.failing.clear()
        await control.rerun("c-1", "charge")
        assert (await made.ended(run=2)).kind == "completed"
    assert len(shop.charged) == 3
    assert shop.refunded == shop.charged[:2]


@in_loop
async def test_a_charge_that_stands_is_not_made_again_by_a_rerun(memory_bus: OpenBus) -> None:
    shop = Shop()
    shop.failing = {"charge"}  # after the charge was made and written down, and before it left a record to undo it by
    async with memory_bus() as bus, lab(bus, table("charge", "ship"), shop.worker) as made:
        await made.submit()
        assert (await made.ended()).kind == "dead-lettered"
        shop.failing = set()
        await Control(made.store, made.settings).rerun("c-1", "charge")
        assert (await made.ended(run=1)).kind == "completed"
    assert (len(shop.charged), shop.refunded) == (1, [])


@in_loop
async def test_what_was_undone_twice_and_fails_in_between_is_still_done_anew(memory_bus: OpenBus) -> None:
    """The newest event before the step is that of the first run: it does not know what was undone since."""
    shop = Shop()
    async with memory_bus() as bus, lab(bus, table("charge", "ship"), shop.worker) as made:
        await made.submit()
        await made.ended()
        control = Control(made.store, made.settings)
        shop.failing = {"charge"}
        await control.rerun("c-1", "charge")
        await made.ended(run=1)
        shop.failing = set()
        await control.rerun("c-1", "charge")
        assert (await made.ended(run=2)).kind == "completed"
    assert len(shop.charged) == 2, "the second charge stands, and was not refunded: it is the one that counts"
    assert shop.refunded == shop.charged[:1]
