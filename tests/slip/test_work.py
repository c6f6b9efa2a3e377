"""What a step has in hand: side effects that are done once, notes, chunks, and what cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus.opening import Opening
from slipstream.slip import InvalidSlip, StepFailed, Work, Worker, open_store
from slipstream.slip.store import UnusableStore
from tests.client.loop import in_loop
from tests.slip.lab import lab, table

OpenBus = Callable[[], Opening]


@in_loop
async def test_what_is_done_once_and_cannot_be_kept_is_not_done_again(memory_bus: OpenBus) -> None:
    charges: list[int] = []
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        def act() -> object:
            charges.append(work.attempt)
            return object()

        await work.once("charge", act)

    async with memory_bus() as bus, lab(bus, table("charge"), worker) as seen:
        await seen.submit()
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    assert charges == [0]
    assert "charge is done, and what it returned cannot be kept" in seen.dead[0]["error"]["message"]


@in_loop
async def test_a_key_is_the_same_at_every_attempt_and_another_for_every_name(memory_bus: OpenBus) -> None:
    keys: list[tuple[str, str]] = []
    last: list[bool] = []
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> dict[str, Any]:
        keys.append((work.idempotency_key(), work.idempotency_key("refund")))
        last.append(work.is_last_attempt)
        if not work.is_last_attempt:
            raise StepFailed("busy")
        return {"reply": 1}

    async with memory_bus() as bus, lab(bus, table("charge"), worker) as seen:
        await seen.submit()
        await seen.ended()
    assert last == [False, False, True]
    assert len(set(keys)) == 1
    assert keys[0][0] != keys[0][1]


@pytest.mark.parametrize("returned", ["text", 5, ["reply"]])
@in_loop
async def test_a_step_returns_fields_or_nothing(memory_bus: OpenBus, returned: Any) -> None:
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> Any:
        return returned

    async with memory_bus() as bus, lab(bus, table({"id": "charge", "max_attempts": 1}), worker) as seen:
        await seen.submit()
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    assert "a step returns None, or a dict" in seen.dead[0]["error"]["message"]


@pytest.mark.parametrize(("index", "total"), [(-1, None), (3, 3)])
@in_loop
async def test_a_chunk_that_belongs_nowhere_is_not_sent(memory_bus: OpenBus, index: int, total: int | None) -> None:
    worker = Worker()
    refused: list[str] = []

    @worker.step("bot")
    async def bot(work: Work) -> None:
        try:
            await work.emit_chunk(index, "x", total=total)
        except InvalidSlip as error:
            refused.append(str(error))

    async with memory_bus() as bus, lab(bus, table("bot"), worker) as seen:
        await seen.submit()
        await seen.ended()
    assert len(refused) == 1
    assert "count from 0" in refused[0]


@pytest.mark.parametrize("url", ["http://x", "postgres://db/slips", "sqlite://http://x"])
def test_an_address_of_something_else_is_no_file(url: str) -> None:
    with pytest.raises(UnusableStore, match="no kind of store"):
        open_store(url)


@in_loop
async def test_a_step_may_return_the_payload_itself(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("echo")
    async def echo(work: Work) -> dict[str, Any]:
        return {"reply": work.payload}

    async with memory_bus() as bus, lab(bus, table("echo"), worker) as seen:
        await seen.submit(payload={"text": "hello"})
        await seen.until(lambda: bool(seen.delivered))
        assert seen.kinds().count("started echo") == 1
    assert seen.delivered[0]["payload"] == {"text": "hello", "reply": {"text": "hello"}}
