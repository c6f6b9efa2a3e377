"""What every store of slips does, whatever it keeps them in."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from slipstream.slip.progress import ENDS
from slipstream.slip.store import Store, StoreClosed, Timer, Tracked, UnusableStore, open_store
from tests.client.loop import in_loop, until

HOUR_MS = 3_600_000
VALUE = bytes(range(256)) * 4


@in_loop
async def test_the_first_to_claim_is_right_and_all_others_learn_what_it_said(url: str) -> None:
    async with open_store(url) as store:
        kept = await asyncio.gather(
            *(store.claim("slip:1", "end", b"%d" % number, ttl_ms=HOUR_MS) for number in range(100))
        )
        assert len(set(kept)) == 1
        assert await store.get("slip:1", "end") == kept[0]


@in_loop
async def test_the_first_to_claim_is_right_whichever_store_asked(shared_url: str) -> None:
    async with open_store(shared_url) as one, open_store(shared_url) as other:
        for number in range(20):
            claims = [
                store.claim(f"slip:{number}", "end", value, ttl_ms=HOUR_MS)
                for store, value in ((one, b"one"), (other, b"other"))
            ]
            kept = await asyncio.gather(*claims)
            assert kept[0] == kept[1]
            assert await one.get(f"slip:{number}", "end") == await other.get(f"slip:{number}", "end") == kept[0]


@in_loop
async def test_a_fact_has_the_bytes_it_was_written_with(url: str) -> None:
    async with open_store(url) as store:
        assert await store.claim("slip:1", "end", VALUE, ttl_ms=HOUR_MS) == VALUE
        await store.put("slip:1", "", b"", ttl_ms=HOUR_MS)
        await store.put("slip:é", "ünd: * [a]", b"\0", ttl_ms=HOUR_MS)
        assert await store.get("slip:1", "end") == VALUE
        assert await store.get("slip:1", "") == b""
        assert await store.get("slip:é", "ünd: * [a]") == b"\0"
        assert await store.get("slip:1", "other") is None
        assert await store.get("slip:2", "end") is None


@in_loop
async def test_put_writes_over_what_is_there(url: str) -> None:
    async with open_store(url) as store:
        await store.claim("slip:1", "end", b"claimed", ttl_ms=HOUR_MS)
        await store.put("slip:1", "end", b"put", ttl_ms=HOUR_MS)
        assert await store.get("slip:1", "end") == b"put"
        assert await store.claim("slip:1", "end", b"late", ttl_ms=HOUR_MS) == b"put"


@in_loop
async def test_the_facts_of_a_record_are_found_by_how_their_names_start(url: str) -> None:
    async with open_store(url) as store:
        for name in ("outcome:a", "outcome:b", "end", "outcom"):
            await store.put("slip:1", name, name.encode(), ttl_ms=HOUR_MS)
        await store.put("slip:10", "outcome:c", b"of another", ttl_ms=HOUR_MS)
        assert await store.facts("slip:1", "outcome:") == {"outcome:a": b"outcome:a", "outcome:b": b"outcome:b"}
        assert set(await store.facts("slip:1")) == {"outcome:a", "outcome:b", "end", "outcom"}
        assert await store.facts("slip:2") == {}


@in_loop
async def test_two_facts_are_read_at_once(url: str) -> None:
    async with open_store(url) as store:
        assert await store.get_two("r", "a", "b") == (None, None)
        await store.put("r", "b", b"2", ttl_ms=60_000)
        await store.put("other", "a", b"no", ttl_ms=60_000)
        assert await store.get_two("r", "a", "b") == (None, b"2")
        await store.put("r", "a", b"1", ttl_ms=60_000)
        assert await store.get_two("r", "a", "b") == (b"1", b"2")
        assert await store.get_two("r", "b", "a") == (b"2", b"1")


@in_loop
async def test_a_fact_that_was_removed_can_be_claimed_anew(url: str) -> None:
    async with open_store(url) as store:
        for name in ("a", "b", "c"):
            await store.claim("slip:1", name, b"first", ttl_ms=HOUR_MS)
        await store.remove("slip:1", "a", "b", "never there")
        await store.remove("slip:1")
        assert await store.facts("slip:1") == {"c": b"first"}
        assert await store.claim("slip:1", "a", b"second", ttl_ms=HOUR_MS) == b"second"


@in_loop
async def test_a_fact_is_forgotten_when_its_time_is_over_and_can_be_claimed_anew(url: str) -> None:
    async with open_store(url) as store:
        await store.claim("slip:1", "end", b"first", ttl_ms=20)

        async def forgotten() -> bool:
            return await store.get("slip:1", "end") is None and await store.facts("slip:1") == {}

        await until(forgotten)
        assert await store.claim("slip:1", "end", b"second", ttl_ms=HOUR_MS) == b"second"
        assert await store.get("slip:1", "end") == b"second"


@in_loop
async def test_what_is_due_is_given_to_one_and_to_another_when_the_lease_is_over(shared_url: str) -> None:
    async with open_store(shared_url) as one, open_store(shared_url) as other:
        for timer in (Timer("b", 200, b"later"), Timer("a", 100, b"sooner"), Timer("c", 1_001, b"not yet")):
            await one.schedule("retries", timer)
        await one.schedule("others", Timer("a", 100, b"of another queue"))
        assert await one.due("retries", 99, limit=10, lease_ms=500) == []
        assert await one.due("retries", 1_000, limit=1, lease_ms=500) == [Timer("a", 1_500, b"sooner")]
        assert await other.due("retries", 1_000, limit=10, lease_ms=500) == [Timer("b", 1_500, b"later")]
        assert await one.due("retries", 1_000, limit=10, lease_ms=500) == []
        await other.unschedule("retries", "b", due_ms=1_500)
        taken = await other.due("retries", 1_500, limit=10, lease_ms=500)
        assert taken == [Timer("c", 2_000, b"not yet"), Timer("a", 2_000, b"sooner")]


@in_loop
async def test_nobody_gets_what_another_got(shared_url: str) -> None:
    async with open_store(shared_url) as one, open_store(shared_url) as other:
        await asyncio.gather(*(one.schedule("retries", Timer(str(number), number, b"")) for number in range(100)))
        asked = (store.due("retries", 1_000, limit=15, lease_ms=500) for _ in range(5) for store in (one, other))
        taken = [timer.id for timers in await asyncio.gather(*asked) for timer in timers]
        assert sorted(taken, key=int) == [str(number) for number in range(100)]


@in_loop
async def test_a_timer_is_scheduled_over_another_with_its_id(url: str) -> None:
    async with open_store(url) as store:
        await store.schedule("retries", Timer("a", 100, b"first"))
        await store.schedule("retries", Timer("a", 300, b"second"))
        assert await store.due("retries", 299, limit=10, lease_ms=1) == []
        assert await store.due("retries", 300, limit=10, lease_ms=1) == [Timer("a", 301, b"second")]


@in_loop
async def test_a_timer_that_was_scheduled_anew_is_not_unscheduled_by_who_knew_the_old(url: str) -> None:
    async with open_store(url) as store:
        await store.schedule("retries", Timer("a", 100, b"first"))
        await store.schedule("retries", Timer("a", 200, b"second"))
        await store.unschedule("retries", "a", due_ms=100)
        assert await store.due("retries", 200, limit=10, lease_ms=50) == [Timer("a", 250, b"second")]
        await store.unschedule("retries", "a", due_ms=200)
        assert await store.due("retries", 250, limit=10, lease_ms=50) == [Timer("a", 300, b"second")]
        await store.unschedule("retries", "a")
        assert await store.due("retries", 1_000, limit=10, lease_ms=50) == []


async def tell(store: Store, at_ms: int, state: str, *, slip: str = "c-1", kind: str = "chat.v1") -> None:
    """Its step is called after its state."""
    ended = state in {"done", "failed", *ENDS}
    progress = f"{state} at {at_ms}".encode()
    await store.track(
        slip, progress, at_ms=at_ms, kind=kind, step=f"to-{state}", state=state, ended=ended, ttl_ms=HOUR_MS
    )


@in_loop
async def test_the_history_of_a_slip_is_in_order_however_it_arrived_and_told_once(url: str) -> None:
    async with open_store(url) as store:
        for at_ms in (30, 10, 20, 10, 30, 5):
            await tell(store, at_ms, "begun")
        await tell(store, 7, "begun", slip="c-2")
        assert await store.history("c-1") == [b"begun at 5", b"begun at 10", b"begun at 20", b"begun at 30"]
        assert await store.history("c-3") == []


@in_loop
async def test_two_of_the_same_time_are_in_the_order_they_were_told(url: str) -> None:
    async with open_store(url) as store:
        for state in ("z", "a", "m", "z"):
            await tell(store, 10, state)
        assert await store.history("c-1") == [b"z at 10", b"a at 10", b"m at 10"]
        assert (await store.tracked())[0].state == "m", "the second z is no news"


STORIES = {
    "the newest counts": ([(10, "begun"), (20, "sent"), (30, "begun")], (30, "begun", False)),
    "an end is the end": ([(10, "begun"), (20, "done"), (30, "sent")], (20, "done", True)),
    "after a rerun it goes on": ([(20, "done"), (30, "rerun"), (40, "sent")], (40, "sent", False)),
    "an end after a rerun": ([(20, "failed"), (30, "rerun"), (40, "done"), (50, "sent")], (40, "done", True)),
    "an old rerun": ([(10, "rerun"), (20, "done"), (30, "begun")], (20, "done", True)),
}


@pytest.mark.parametrize("story", STORIES)
@in_loop
async def test_where_a_slip_is_does_not_depend_on_the_order_of_what_is_heard(url: str, story: str) -> None:
    heard, (moved_ms, state, ended) = STORIES[story]
    async with open_store(url) as store:
        for number, order in enumerate(itertools.permutations(heard)):
            slip = f"c-{number}"
            for at_ms, each in order:
                await tell(store, at_ms, each, slip=slip, kind="" if at_ms % 20 else "chat.v1")
            tracked = next(each for each in await store.tracked(limit=1_000) if each.slip == slip)
            begun_ms = min(at_ms for at_ms, _ in heard)
            assert tracked == Tracked(slip, "chat.v1", f"to-{state}", state, begun_ms, moved_ms, ended), order


@in_loop
async def test_slips_are_listed_by_when_they_moved(url: str) -> None:
    async with open_store(url) as store:
        for slip, at_ms, state in (("a", 10, "sent"), ("b", 20, "done"), ("c", 30, "sent"), ("d", 40, "done")):
            await tell(store, at_ms, state, slip=slip)

        async def listed(*, ended: bool | None = None, before: int | None = None, limit: int = 100) -> str:
            found = await store.tracked(ended=ended, moved_before_ms=before, limit=limit)
            return "".join(tracked.slip for tracked in found)

        assert await listed() == "dcba"
        assert await listed(limit=2) == "dc"
        assert await listed(ended=True) == "db"
        assert await listed(ended=False) == "ca"
        assert await listed(before=30) == "ab"
        assert await listed(ended=False, before=31) == "ac"
        assert await listed(ended=False, before=31, limit=1) == "a"
        await tell(store, 50, "done", slip="a")
        await tell(store, 60, "rerun", slip="d")
        assert await listed(ended=True) == "ab"
        assert await listed(ended=False) == "dc"
        assert await listed() == "dacb"


@in_loop
async def test_slips_are_found_by_the_state_they_ended_in(url: str) -> None:
    async with open_store(url) as store:
        for slip, at_ms, state in (("a", 10, "dead-lettered"), ("b", 11, "dead-lettered"), ("c", 12, "dead-lettered")):
            await tell(store, at_ms, state, slip=slip)
        await tell(store, 20, "rerun", slip="b")
        for number in range(9):
            await tell(store, 30 + number, "completed", slip=f"d-{number}")

        async def listed(**asked: Any) -> str:
            return "".join(tracked.slip for tracked in await store.tracked(end_state="dead-lettered", **asked))

        assert await listed(limit=3) == "ca", "however many others have ended since"
        assert await listed(limit=1) == "c"
        assert await listed(moved_before_ms=12, ended=True) == "a"
        assert await listed(ended=False) == ""
        assert len(await store.tracked(end_state="completed")) == 9
        assert await store.known(["a", "d-8", "nobody"]) == {"a", "d-8"}
        assert await store.known([]) == set()
        await tell(store, 40, "dead-lettered", slip="b")
        assert await listed() == "bca"
        await store.purge(HOUR_MS + 39)
        assert await listed() == "b"


@in_loop
async def test_a_purge_forgets_slips_whose_time_is_over(url: str) -> None:
    async with open_store(url) as store:
        await tell(store, 10, "done", slip="old")
        await tell(store, 10, "begun", slip="moved")
        await tell(store, 20, "done", slip="moved")
        await tell(store, 5, "begun", slip="moved")
        assert await store.purge(HOUR_MS + 9) == 0
        assert await store.purge(HOUR_MS + 10) == 1
        assert [tracked.slip for tracked in await store.tracked()] == ["moved"]
        assert await store.history("old") == []
        assert len(await store.history("moved")) == 3
        assert await store.purge(HOUR_MS + 20) == 1
        assert await store.tracked() == [] == await store.history("moved")


@in_loop
async def test_who_is_cancelled_harms_nobody(url: str) -> None:
    async with open_store(url) as store:
        for turn in range(5):
            record = f"slip:{turn}"
            claims = [
                asyncio.create_task(store.claim(record, str(number), b"x", ttl_ms=HOUR_MS)) for number in range(100)
            ]
            for _ in range(turn + 1):  # how far they get is different each time
                await asyncio.sleep(0)
            for claim in claims[::2]:
                claim.cancel()
            await asyncio.wait(claims)
            assert [claim.result() for claim in claims[1::2]] == [b"x"] * 50
            assert await store.claim(record, "0", b"x", ttl_ms=HOUR_MS) == b"x"


@in_loop
async def test_what_was_written_is_there_when_the_store_is_opened_again(shared_url: str) -> None:
    async with open_store(shared_url) as store:
        await store.claim("slip:1", "end", VALUE, ttl_ms=HOUR_MS)
        await store.schedule("retries", Timer("a", 100, b"due"))
        await tell(store, 10, "begun")
    store = await open_store(shared_url)
    assert await store.get("slip:1", "end") == VALUE
    assert await store.due("retries", 100, limit=1, lease_ms=1) == [Timer("a", 101, b"due")]
    assert await store.history("c-1") == [b"begun at 10"]
    await store.close()


@in_loop
async def test_closing_finishes_what_was_asked_for(shared_url: str) -> None:
    store = await open_store(shared_url)
    claims = [asyncio.create_task(store.claim("slip:1", str(number), b"x", ttl_ms=HOUR_MS)) for number in range(50)]
    await asyncio.sleep(0)  # they have asked
    await store.close()
    assert await asyncio.gather(*claims) == [b"x"] * 50
    async with open_store(shared_url) as again:
        assert len(await again.facts("slip:1")) == 50


@in_loop
async def test_a_store_that_is_not_open_says_so(url: str) -> None:
    async with open_store(url) as store:
        pass
    with pytest.raises(StoreClosed, match="closed"):
        await store.get("slip:1", "end")
    with pytest.raises(StoreClosed, match="closed"):
        await store.claim("slip:1", "end", b"x", ttl_ms=1)
    with pytest.raises(StoreClosed):
        await store.open()
    await store.close()


@in_loop
async def test_a_fact_that_is_there_lives_no_longer_because_it_is_claimed_again(url: str) -> None:
    async with open_store(url) as store:
        await store.claim("slip:1", "end", b"first", ttl_ms=20)
        while await store.claim("slip:1", "end", b"second", ttl_ms=HOUR_MS) == b"first":
            pass
        assert await store.get("slip:1", "end") == b"second"


@in_loop
async def test_a_fact_that_is_put_again_lives_on(url: str) -> None:
    async with open_store(url) as store:
        await store.put("slip:1", "end", b"first", ttl_ms=20)
        await store.put("slip:2", "end", b"other", ttl_ms=30)
        await store.put("slip:1", "end", b"second", ttl_ms=HOUR_MS)

        async def other_is_forgotten() -> bool:
            return await store.get("slip:2", "end") is None

        await until(other_is_forgotten)
        assert await store.get("slip:1", "end") == b"second"


@in_loop
async def test_an_empty_address_is_refused() -> None:
    for url in ("", "sqlite://"):
        with pytest.raises(UnusableStore, match="needs a path"):
            open_store(url)
