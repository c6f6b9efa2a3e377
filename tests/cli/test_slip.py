"""`slipstream slip show` and `slipstream slip list`, on stores that a router and a worker have written."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cli.slip_timeline import draw, in_words
from slipstream.slip import Control, load_settings, open_store
from slipstream.slip.oversight import Oversight
from slipstream.slip.standing import Standing
from slipstream.slip.unserved import unserved_topics
from tests.cli.slips import Slips, kept, open_shop
from tests.client.loop import in_loop
from tests.slip.lab import fast
from tests.slip.store.valkey import ValkeyServer


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Slips:
    """Messages that have ended, wait, failed, and that nobody takes up."""
    path = tmp_path_factory.mktemp("histories") / "slips.db"
    settings = fast(store=str(path), retry_base_ms=600)  # a pause that is seen, however long the rest takes

    async def make() -> None:
        async with open_shop(path, settings) as made:
            await made.submit(payload={"failures": 2}, correlation_id="well")
            await made.submit(payload={"lost": True, "gift": True}, correlation_id="lost")
            await made.submit("loan.v1", correlation_id="loan")
            await made.submit("split.v1", correlation_id="split")
            await made.submit("lonely.v1", correlation_id="lonely", timeout=3600)
            await made.submit("mystery.v1", correlation_id="mystery")
            await kept(made, "well", "completed")
            await kept(made, "lost", "dead-lettered")
            await kept(made, "loan", "waiting")
            await kept(made, "split/both/left", "waiting")
            await kept(made, "split/both/right", "completed")
            await kept(made, "lonely", "finished")
            while not await unserved_topics(made.store):
                await asyncio.sleep(0)
            await kept(made, "mystery", "dead-lettered")
            await Control(made.store, made.settings).rerun("lost", "charge")
            await made.ended("lost", 1)
            await kept(made, "lost", "rerun")

    asyncio.run(make())
    return Slips(path)


def words(line: str) -> list[str]:
    """Without the bar."""
    return [word for word in line.split() if word.strip("·█─")]


# show


def test_a_message_is_drawn_from_its_plan_to_its_end(histories: Slips) -> None:
    header, facts, _, axis, *rows, _, last = histories.said("show", "well").splitlines()
    assert header == "well  order.v1  completed"
    assert facts.startswith("begun ")
    assert " · took " in facts
    assert axis.split()[0] == "0"
    starts = [" ".join(words(line)[:3]) for line in rows]
    assert [start.split()[:2] for start in starts] == [
        ["✓", "validate"],
        ["-", "gift-wrap"],
        ["↻", "charge"],
        ["↻", "charge"],
        ["✓", "charge"],
        ["✓", "prepare"],
        ["✓", "warehouse:"],
        ["✓", "reserve"],
        ["✓", "pick"],
        ["✓", "papers:"],
        ["✓", "invoice"],
        ["✗", "greeting"],
        ["✓", "ship"],
        ["✓", "notify"],
    ]
    assert rows[1].endswith("skipped: its unless holds")
    assert rows[2].endswith("bank_away: the bank did not answer within 200 ms, and nobody knows when it will")
    assert rows[3].endswith("bank_away, as before")
    assert [words(row)[2] for row in rows[2:5]] == ["#1", "#2", "#3"]
    assert rows[7].startswith("    ✓ reserve")
    assert rows[11].endswith("rejected: nobody writes cards any more; it may fail: the message goes on without it")
    assert last.startswith("completed ")


def test_a_retry_waits_and_then_works(histories: Slips) -> None:
    second = next(line for line in histories.said("show", "well").splitlines() if "charge #2" in line)
    assert "··█" in second


def test_a_dead_letter_shows_what_was_undone_and_how_to_run_it_again(histories: Slips) -> None:
    said = histories.said("show", "lost")
    first, second = said.split("run 2, from charge: dead-lettered")
    assert "run 1: dead-lettered" in first
    for run in (first, second):
        forward, backward = run.split("undone, the last first\n")
        assert "rejected: no such address: [bold]Nowhere[/] 7" in forward
        assert [words(line)[:2] for line in backward.splitlines()[:2]] == [["✓", "reserve"], ["✓", "charge"]]
    assert "validate" in first
    assert "validate" not in second
    assert said.splitlines()[-1].endswith(" — slipstream slip rerun lost --from charge")


def test_a_message_that_waits_says_for_whom_and_what_to_type(histories: Slips) -> None:
    said = histories.said("show", "loan").splitlines()
    assert said[-1].startswith("waits for approval at manager for ")
    assert ", until " in said[-1]
    assert said[-1].endswith(" — slipstream slip approve loan manager")
    assert [words(line)[:2] for line in said[4:8]] == [
        ["✓", "validate"],
        ["?", "manager"],
        ["○", "charge"],
        ["○", "notify"],
    ]


def test_a_branch_that_waits_is_found_through_its_parent(histories: Slips) -> None:
    said = histories.said("show", "split")
    assert "    ? clerk" in said
    assert said.splitlines()[-1].endswith(" — slipstream slip approve split/both/left clerk")


def test_a_message_that_nobody_takes_up_asks_for_a_worker(histories: Slips) -> None:
    found = histories.json("show", "lonely")
    assert found["standing"]["going"] == "no worker"
    assert "given up at" in histories.said("show", "lonely")


def test_what_was_never_planned_says_why(histories: Slips) -> None:
    said = histories.said("show", "mystery")
    assert "it was not planned" in said
    assert "no_route: there is no route for events of type 'mystery.v1'" in said


def test_for_machines_there_is_all_of_it(histories: Slips) -> None:
    found = histories.json("show", "lost")
    assert (found["correlationId"], found["type"], found["state"]) == ("lost", "order.v1", "dead-lettered")
    assert [run["number"] for run in found["runs"]] == [0, 1]
    rows = {(row["step"], row.get("attempt", 0)): row for row in found["runs"][0]["rows"]}
    assert rows["ship", 0]["error"]["message"] == "no such address: [bold]Nowhere[/] 7"
    assert [branch["branch"] for branch in rows["prepare", 0]["branches"]] == ["warehouse", "papers"]
    assert [row["undoes"] for row in found["runs"][0]["undoing"]] == ["reserve", "charge"]


def test_an_unknown_id_is_not_found_and_the_reasons_are_named(histories: Slips) -> None:
    error = histories.refused("show", "nothing", expect=3)
    assert "nothing is kept of nothing" in error
    assert "SLIP_TTL_MS" in error
    assert "track=True" in error


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "slips.db"
    for command in (
        ["show", "c-1"],
        ["list"],
        ["pauses"],
        ["pause", "a"],
        ["approve", "c-1", "a"],
        ["rerun", "c-1", "--from", "a"],
    ):
        assert f"there is no store {path}" in Slips(path).refused(*command, expect=5)
    assert not path.parent.exists()


def test_a_store_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    path.write_text("no database " * 100)
    assert "is no database" in Slips(path).refused("list", expect=1)
    assert "nothing to see from here" in Slips(Path(":memory:")).refused("list", expect=2)


def test_a_step_without_a_worker_is_shown_with_its_topic(histories: Slips) -> None:
    last = " ".join(histories.said("show", "lonely").split())
    assert "no worker can take nobody" in last
    assert "no worker has ever subscribed to internal.nobody.v1" in last
    assert "@worker.step('nobody', topic='internal.nobody.v1')" in last


def test_taken_not_taken_and_taken_by_a_worker_that_died_read_differently() -> None:
    now = dt.datetime(2030, 1, 31, 12, 0, tzinfo=dt.UTC)
    since = now - dt.timedelta(seconds=20)

    def said(**given: object) -> str:
        return in_words("c-1", Standing(step="charge", since=since, **given), now)  # type: ignore[arg-type]

    assert said(going="at work", by="host:1") == "charge is being worked on for 20 s by host:1"
    assert said(going="worker lost", by="host:1", reason="it stopped 9 s ago").startswith(
        "charge was taken 20 s ago by host:1, which does not work on it any more: it stopped 9 s ago; "
    )
    waiting = "charge is not taken yet from internal.charge.v1 for 20 s: "
    there = {"going": "not taken up", "topic": "internal.charge.v1"}
    assert said(**there) == waiting + "no worker for it is known to run there"
    lost = said(**there, reason="the last was host:1: it stopped 9 s ago")
    assert lost.endswith("no worker for it is known to run there; the last was host:1: it stopped 9 s ago")
    assert said(**there, workers=("host:1",)) == waiting + "its worker is running, and may be busy with others"
    assert said(**there, workers=("a", "b")).endswith("its 2 workers are running, and may be busy with others")


# list


def test_the_list_has_the_newest_first(histories: Slips) -> None:
    found = histories.lines("list")
    assert found[0]["correlationId"] == "lost"
    moved = [each["movedMs"] for each in found]
    assert moved == sorted(moved, reverse=True)
    lines = histories.said("list", "--limit", "2").splitlines()
    assert lines[0].split() == ["CORRELATION", "ID", "TYPE", "STATE", "STEP", "MOVED", "WHY"]
    assert len(lines) == 3
    assert "there are more than 2" in histories.run("list", "--limit", "2").stderr


def test_stuck_are_those_that_have_not_moved_and_why(histories: Slips) -> None:
    found = histories.lines("list", "--stuck", "--branches", "--for", "0")
    moved = [each["movedMs"] for each in found]
    assert moved == sorted(moved)
    assert {each["correlationId"]: (each["going"], each["at"]) for each in found} == {
        "lonely": ("no worker", "nobody"),
    }, "an approval that waits by design is not stuck, nor is a slip whose branch waits for one"
    said = histories.said("list", "--stuck", "--for", "0")
    assert "split/both/left" not in said
    assert [line.split()[0] for line in said.splitlines() if "no worker" in line and "nobody" in line] == ["lonely"]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_a_correlation_id_is_never_cut(tmp_path: Path, columns: str) -> None:
    slips = Slips(tmp_path / "slips.db")
    correlation_id = "f" * 32

    async def history() -> None:
        async with open_shop(slips.store) as made:
            await made.submit("loan.v1", correlation_id=correlation_id)
            await kept(made, correlation_id, "waiting")

    asyncio.run(history())
    said = slips.said("list", COLUMNS=columns)
    assert correlation_id in said
    assert "waits for approval" in said


@in_loop
async def test_a_branch_that_is_left_over_is_not_stuck(tmp_path: Path) -> None:
    """Its message has failed without it, and nobody waits for it."""
    slips = Slips(tmp_path / "slips.db")
    async with open_shop(slips.store) as made:
        await made.submit("race.v1", {"lost": True})
        await kept(made, "c-1", "dead-lettered")
        await kept(made, "c-1/first/bad", "dead-lettered")
        assert [each["correlationId"] for each in slips.lines("list", "--branches") if not each["ended"]] == [
            "c-1/first/slow"
        ]
        assert slips.lines("list", "--stuck", "--branches", "--for", "0") == []


def test_an_unreachable_store_has_the_code_for_it() -> None:
    code = "from slipstream.cli import main; main(prog_name='slipstream')"
    command = [sys.executable, "-c", code, "slip", "list", "--store", "redis://127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 5, ended.stderr
    assert "Traceback" not in ended.stderr


@in_loop
async def test_a_store_in_redis_is_seen_in_the_same_way(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path)
    server.start()
    try:
        slips = Slips(tmp_path / "unused")
        async with open_shop(server.url) as made:
            await made.submit("loan.v1")
            await kept(made, "c-1", "waiting")
            assert "waits for approval at manager" in slips.said("show", "c-1", SLIP_STORE=server.url)
            assert [each["correlationId"] for each in slips.lines("list", SLIP_STORE=server.url)] == ["c-1"]
            slips.run("approve", "c-1", "manager", "--store", server.url)
            assert (await made.ended()).kind == "completed"
    finally:
        server.kill()


def test_failed_are_dead_letters_with_their_errors(histories: Slips) -> None:
    reasons = {each["correlationId"]: each["reason"] for each in histories.lines("list", "--failed")}
    assert set(reasons) == {"lost", "mystery"}
    assert reasons["lost"].startswith("rejected: no such address")


def test_a_quiet_system_says_so_in_one_line(histories: Slips, tmp_path: Path) -> None:
    said = histories.said("list", "--stuck")
    assert said == "nothing is stuck: all slips have moved in the last 5 min, or wait by design\n"

    async def make() -> None:
        async with open_store(str(tmp_path / "new.db")):
            pass

    asyncio.run(make())
    new = Slips(tmp_path / "new.db")
    assert new.said("list") == "no messages: none has come yet, or no router keeps their history\n"
    assert new.said("list", "--failed") == "no message has failed, of those that are kept\n"
    assert new.said("list", "--json") == ""


def test_options_that_do_not_go_together_are_refused(histories: Slips) -> None:
    assert "--for goes with --stuck" in histories.refused("list", "--for", "1m", expect=2)
    assert "one of them" in histories.refused("list", "--stuck", "--failed", expect=2)


def test_what_is_drawn_fits_the_terminal(histories: Slips) -> None:
    async def lines(correlation_id: str, width: int) -> list[str]:
        async with open_store(str(histories.store)) as store:
            found = await Oversight(store, load_settings({})).timeline(correlation_id)
            return [line.plain for line in draw(found, width, dt.datetime.now(dt.UTC))]

    for width in (80, 120, 200):
        for correlation_id in ("well", "lost", "split", "loan"):
            drawn = asyncio.run(lines(correlation_id, width))
            assert max(map(len, drawn)) <= width


@in_loop
async def test_names_that_would_give_orders_to_the_terminal_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    name = "c\x1b[31m\n[bold]1"
    async with open_shop(path) as made:
        await made.submit("myst\x1b]0;ery", correlation_id=name)
        await kept(made, name, "dead-lettered")
    slips = Slips(path)
    for shown in (slips.said("list"), slips.said("list", "--failed"), slips.said("show", name)):
        assert "\x1b" not in shown
        assert r"c\x1b[31m\n[bold]1" in shown
        assert r"myst\x1b]0;ery" in shown
    assert slips.lines("list")[0]["correlationId"] == name
