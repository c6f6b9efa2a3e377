"""What people do with slips from the command line, and what the router makes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slipstream.slip import decode, open_store
from slipstream.slip.control import Begin, Signal, decode_errand
from slipstream.slip.ledger import Ledger
from tests.cli.slips import Slips, kept, open_shop
from tests.client.loop import in_loop
from tests.slip.lab import Lab


@pytest.fixture
def slips(tmp_path: Path) -> Slips:
    return Slips(tmp_path / "slips.db")


async def until_held(caplog: pytest.LogCaptureFixture, step: str) -> None:
    """Until its worker has heard of the pause."""
    async with asyncio.timeout(30):
        while not any(f"step {step} is paused" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.01)


async def payload_of(made: Lab, correlation_id: str) -> Any:
    (*_, newest) = await Ledger(made.store, 1).outcomes(correlation_id)
    return decode(newest.event).payload


# Decisions


@in_loop
async def test_what_waits_is_approved_from_outside(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit("loan.v1", {"sum": 7})
        await kept(made, "c-1", "waiting")
        said = slips.said("approve", "c-1", "manager", "--by", "ada", "--note", "known", "--data", '{"limit": 9}')
        assert said == "approved manager of c-1: the router takes it up within 500 ms, where one runs\n"
        assert (await made.ended()).kind == "completed"
        word = {"decision": "approve", "by": "ada", "note": "known", "data": {"limit": 9}}
        assert (await payload_of(made, "c-1"))["manager"] == word
        await kept(made, "c-1", "completed")
        shown = slips.said("show", "c-1")
    assert "approved by ada: known" in shown
    assert "c-1 is completed: nothing waits there any more" in slips.refused("deny", "c-1", "manager", expect=4)


@in_loop
async def test_what_is_denied_fails(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit("loan.v1")
        await kept(made, "c-1", "waiting")
        slips.said("deny", "c-1", "manager", "--by", "bob", "--note", "too much")
        assert (await made.ended()).kind == "dead-lettered"
        await kept(made, "c-1", "dead-lettered")
    assert "denied by bob: too much" in slips.said("show", "c-1")


@in_loop
async def test_a_signal_brings_data(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit("webhook.v1")
        await kept(made, "c-1", "waiting")
        (slips.store.parent / "answer.json").write_text('["paid"]')
        slips.said("signal", "c-1", "callback", "--data", f"@{slips.store.parent}/answer.json")
        await made.ended()
        assert (await payload_of(made, "c-1"))["callback"]["data"] == ["paid"]


@in_loop
async def test_a_word_that_comes_early_is_kept_and_the_first_counts(
    slips: Slips, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(slips.store) as made:
        slips.said("pause", "validate")
        await until_held(caplog, "validate")
        await made.submit("loan.v1")
        await kept(made, "c-1", "planned")
        said = slips.said("approve", "c-1", "manager", "--by", "ada")
        assert said == "approved manager of c-1, which does not wait there yet: the word is kept for it\n"
        async with asyncio.timeout(30):
            while await Ledger(made.store, 1).get("c-1", "signal:manager") is None:
                await asyncio.sleep(0.01)
        error = slips.refused("deny", "c-1", "manager", expect=4)
        assert "manager of c-1 was told approve by ada before: the first word counts" in error
        slips.said("resume", "validate")
        assert (await made.ended()).kind == "completed"


@in_loop
async def test_a_word_to_nobody_is_refused_and_says_who_there_is(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit("split.v1", correlation_id="split")
        await kept(made, "split/both/left", "waiting")

        def refused(*arguments: str, expect: int = 2) -> str:
            return slips.refused(*arguments, expect=expect)

        assert "nothing is kept of c-9" in refused("approve", "c-9", "manager", expect=3)
        assert "split has no step manger; there are both, notify" in refused("approve", "split", "manger")
        assert "name split/both/left instead" in refused("approve", "split", "clerk")
        assert "waits for nobody's word" in refused("approve", "split", "notify")
        assert "is no JSON" in refused("approve", "split/both/left", "clerk", "--data", "{")
        assert "cannot be read" in refused("approve", "split/both/left", "clerk", "--data", "@/no/such/file")
        assert slips.json("approve", "split/both/left", "clerk")["waits"] is True
        assert (await made.ended("split")).kind == "completed"


# Pauses


@in_loop
async def test_a_paused_step_is_not_worked_at_until_it_is_resumed(
    slips: Slips, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(slips.store) as made:
        said = slips.said("pause", "charge", "--reason", "the bank is away")
        assert said == "charge is paused until it is resumed: workers follow within 500 ms\n"
        await until_held(caplog, "charge")
        await made.submit()
        await kept(made, "c-1", "skipped")
        last = slips.said("show", "c-1").splitlines()[-1]
        assert last == "step charge is paused: the bank is away — slipstream slip resume charge"
        stuck = slips.lines("list", "--stuck", "--for", "0")
        assert [each["reason"] for each in stuck] == ["the bank is away"]
        assert "started charge" not in made.kinds()
        assert slips.said("resume", "charge") == "resumed charge; workers follow within 500 ms\n"
        assert (await made.ended()).kind == "completed"


@in_loop
async def test_pauses_are_listed_until_their_time_is_over(slips: Slips) -> None:
    async with open_store(str(slips.store)):
        pass
    assert slips.said("pauses") == "no step is paused\n"
    assert "for 30 min" in slips.said("pause", "charge", "--for", "30m", "--reason", "[red]away")
    slips.run("pause", "ship")
    assert {each["step"]: each.get("reason") for each in slips.lines("pauses")} == {"charge": "[red]away", "ship": None}
    header, charge, ship = slips.said("pauses").splitlines()
    assert header.split() == ["STEP", "UNTIL", "REASON"]
    assert charge.endswith("[red]away")
    assert ship.split() == ["ship", "resumed", "-"]
    assert slips.json("resume", "ship") == {"step": "ship", "wasPaused": True}
    assert slips.said("resume", "ship") == "ship was not paused\n"
    assert slips.json("pause", "ship", "--for", "0") == {"step": "ship", "paused": False}


# Again


@in_loop
async def test_a_message_runs_again_from_a_step_after_one_that_was_skipped(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit(payload={"failures": 3})
        assert (await made.ended()).kind == "dead-lettered"
        await kept(made, "c-1", "dead-lettered")
        answer = slips.json("rerun", "c-1", "--from", "charge")
        assert answer == {"correlationId": "c-1", "from": "charge", "run": 1}
        assert (await made.ended(run=1)).kind == "completed"
        await kept(made, "c-1", "completed")
    assert "run 2, from charge: completed" in slips.said("show", "c-1")


@in_loop
async def test_a_rerun_that_makes_no_sense_says_what_would(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit(payload={"lost": True})
        await made.ended()
        await kept(made, "c-1", "dead-lettered")
    assert "has no step shp" in slips.refused("rerun", "c-1", "--from", "shp", expect=2)
    assert "charge had been undone: run it again from charge" in slips.refused(
        "rerun", "c-1", "--from", "ship", expect=2
    )
    assert "nothing is kept of c-9" in slips.refused("rerun", "c-9", "--from", "ship", expect=3)
    assert "there is a message c-1 already" in slips.refused(
        *["copy", "c-1", "--from", "charge", "--id", "c-1"], expect=2
    )


@in_loop
async def test_a_copy_has_a_payload_of_its_own(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        await made.submit(payload={"failures": 3})
        await made.ended()
        said = slips.said(*["copy", "c-1", "--from", "charge", "--id", "c-2", "--payload", '{"reply":1}'])
        assert said.startswith("c-2 is a copy of c-1 from charge: ")
        assert (await made.ended("c-2")).kind == "completed"
        assert (await payload_of(made, "c-2"))["reply"] == 1
        await kept(made, "c-2", "completed")
        assert "a copy of c-1: completed" in slips.said("show", "c-2")
        made_up = slips.json(*["copy", "c-1", "--from", "charge"])["correlationId"]
        assert made_up.startswith("c-1~")


@in_loop
async def test_what_is_asked_for_waits_in_the_store_for_a_router(slips: Slips) -> None:
    """Also where none runs now."""
    async with open_shop(slips.store) as made:
        await made.submit("loan.v1")
        await kept(made, "c-1", "waiting")
    said = slips.run("rerun", "c-1", "--from", "validate")
    assert "c-1 had not ended" in said.stderr
    slips.run("approve", "c-1", "manager")
    async with open_store(str(slips.store)) as store:
        due = await store.due("router", 2**53, limit=10, lease_ms=1)
    assert {type(decode_errand(timer.value)) for timer in due} >= {Begin, Signal}


@in_loop
async def test_an_event_is_submitted_through_the_store_and_cancelled(slips: Slips) -> None:
    async with open_shop(slips.store) as made:
        answer = slips.json("submit", "loan.v1", '{"total": 7}', "--id", "c-7")
        assert answer == {"correlationId": "c-7"}
        await kept(made, "c-7", "waiting")
        assert "c-7 is cancelled" in slips.said("cancel", "c-7", "--reason", "no more")
        assert (await made.ended("c-7")).kind == "dead-lettered"
        await kept(made, "c-7", "dead-lettered")
        assert "c-7 is over" in slips.refused("cancel", "c-7", expect=4)
        assert "cancelled: no more" in slips.said("show", "c-7")
        assert "is no JSON" in slips.refused("submit", "loan.v1", "{", expect=2)
        said = slips.refused("submit", "laon.v1", expect=2)
        assert "no router has a route for events of type 'laon.v1' (did you mean loan.v1 or lonely.v1?)" in said
        assert "there are routes for loan.v1, lonely.v1, " in said
