"""What people are shown of slips, out of a store that keeps many."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.slip import open_store, oversight
from slipstream.slip.oversight import Oversight
from slipstream.slip.progress import Kind, Progress, encode_progress
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store
from tests.client.loop import in_loop


async def end(store: Store, slip: str, kind: Kind, at_ms: int, parent: str = "") -> None:
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    progress = encode_progress(Progress(kind=kind, correlation_id=slip, at=at, step="charge", parent=parent))
    await store.track(
        slip, progress, at_ms=at_ms, kind="order.v1", step="charge", state=kind, ended=True, ttl_ms=3_600_000
    )


@in_loop
async def test_failed_slips_are_shown_however_many_others_have_ended_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversight, "LOOKED_AT", 4)
    async with open_store(":memory:") as store:
        for number, (slip, parent) in enumerate((("c-1", ""), ("c-2/fork/left", "c-2"), ("eu/fork/c-3", ""))):
            await end(store, slip, "dead-lettered", number, parent)
        for number in range(9):
            await end(store, f"d-{number}", "completed", 1_000 + number)
        await end(store, "c-2", "completed", 5_000)
        slips = Oversight(store, SlipSettings())
        assert await slips.count_dead_letters() == 2, "a branch counts with the slip that it is of"
        found = (await slips.slips("dead-lettered", limit=10)).slips
        assert [each.tracked.slip for each in found] == ["eu/fork/c-3", "c-1"]
