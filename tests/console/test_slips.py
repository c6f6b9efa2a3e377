"""Slips in the console: a real router and worker, and the store that they share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.problems import Seen
from slipstream.console.slips import Slips, jobs_of
from slipstream.slip import Envelope, Event, RoutingStep, Status
from tests.cli.slips import Slips as Command
from tests.cli.slips import kept, open_shop
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening
from tests.slip.lab import Lab, fast


class Site:
    """A shop, and a console that looks at it."""

    def __init__(self, url: str, shop: Lab, slips: Slips, store: Path) -> None:
        self.url = url
        self.shop = shop
        self.slips = slips
        self.store = store

    async def get(self, path: str) -> Any:
        status, answer, _ = await ask(f"{self.url}{path}")
        assert status == 200, answer
        return answer

    async def refused(self, path: str, method: str = "GET", **body: Any) -> tuple[int, str, str]:
        status, answer, _ = await ask(f"{self.url}{path}", method, json=body if method != "GET" else None)
        return status, answer["error"], answer["message"]


@contextlib.asynccontextmanager
async def looking(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    path = folder / "slips.db"
    given = fast(store=str(path), retry_base_ms=60, **settings)
    async with open_shop(path, given) as shop:
        slips = Slips(given, is_expected=lambda: True)
        console = create_console(Sources(Numbers(), slips=slips))
        try:
            async with listening(console) as url:
                yield Site(url, shop, slips, path)
        finally:
            await console.close()


async def until_waiting(site: Site, name: str) -> None:
    await kept(site.shop, name, "waiting")


@in_loop
async def test_slips_are_listed_with_where_they_are_and_why(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("order.v1", {"lost": True}, correlation_id="o-1")
        await site.shop.submit("order.v1", {}, correlation_id="o-2")
        await site.shop.submit("loan.v1", {}, correlation_id="l-1")
        await kept(site.shop, "o-1", "dead-lettered")
        await kept(site.shop, "o-2", "completed")
        await until_waiting(site, "l-1")
        page = await site.get("/v2/slips")
        found = {each["correlationId"]: each for each in page["slips"]}
        assert set(found) == {"o-1", "o-2", "l-1"}
        assert page["more"] is False
        dead = found["o-1"]
        assert (dead["type"], dead["state"], dead["step"], dead["ended"]) == ("order.v1", "dead-lettered", "ship", True)
        assert dead["reason"].endswith("no such address: [bold]Nowhere[/] 7")
        assert dead["begunMs"] <= dead["movedMs"]
        assert (found["l-1"]["going"], found["l-1"]["step"], found["l-1"]["ended"]) == ("approval", "manager", False)
        for state, names in {
            "completed": {"o-2"},
            "dead-lettered": {"o-1"},
            "under-way": {"l-1"},
            "waiting": {"l-1"},
            "stuck": set(),
        }.items():
            listed = await site.get(f"/v2/slips?state={state}")
            assert {each["correlationId"] for each in listed["slips"]} == names, state
        searched = await site.get("/v2/slips?search=loan")
        assert [each["correlationId"] for each in searched["slips"]] == ["l-1"]
        of_a_type = await site.get("/v2/slips?type=order.v1&limit=1&search=o-1")
        assert [each["correlationId"] for each in of_a_type["slips"]] == ["o-1"]
        assert {"loan.v1", "order.v1"} <= set(of_a_type["types"]), "all that could be chosen, not only what is shown"
        assert (await site.get("/v2/slips?type=order"))["slips"] == []
        assert (await site.get("/v2/slips?limit=2"))["more"] is True
        branches = await site.get("/v2/slips?branches=true")
        assert len(branches["slips"]) > 3
        assert (await site.refused("/v2/slips?state=odd"))[:2] == (400, "INVALID_ARGUMENT")


@in_loop
async def test_a_slip_is_shown_as_the_command_line_has_it_with_its_payload(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("order.v1", {"gift": True}, correlation_id="o-1")
        await kept(site.shop, "o-1", "completed")
        shown = await site.get("/v2/slips/o-1")
        typed = await asyncio.to_thread(Command(site.store).json, "show", "o-1")
        assert {name: shown[name] for name in typed} == typed
        assert set(shown) - set(typed) == {"payload", "envelope", "jobs"}
        assert shown["envelope"]["correlationId"] == "o-1"
        assert (shown["payload"]["gift"], shown["jobs"]) == (True, [])
        (row,) = [row for row in shown["runs"][0]["rows"] if row["step"] == "prepare"]
        branch = row["branches"][0]["correlationId"]
        assert "/" in branch, "its id has slashes in it"
        assert (await site.get(f"/v2/slips/{branch}"))["correlationId"] == branch
        assert (await site.refused("/v2/slips/nobody"))[:2] == (404, "NOT_FOUND")


@in_loop
async def test_a_word_is_given_where_it_is_waited_for(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("loan.v1", {}, correlation_id="l-1")
        await until_waiting(site, "l-1")
        said = {"step": "manager", "decision": "approve", "by": "ada", "note": "known", "data": {"limit": 5}}
        status, answer, _ = await ask(f"{site.url}/v2/slips/l-1/signals", "POST", json=said)
        assert (status, answer["waits"], answer["decision"]) == (202, True, "approve")
        await kept(site.shop, "l-1", "completed")
        shown = await site.get("/v2/slips/l-1")
        (row,) = [row for row in shown["runs"][0]["rows"] if row["step"] == "manager"]
        assert "ada" in row["detail"]
        again = await site.refused("/v2/slips/l-1/signals", "POST", **said)
        assert again[:2] == (409, "FAILED_PRECONDITION")
        assert "completed" in again[2]


@in_loop
async def test_a_word_that_makes_no_sense_is_refused_as_on_the_command_line(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("loan.v1", {}, correlation_id="l-1")
        await until_waiting(site, "l-1")
        for body, status, words in (
            ({"step": "nowhere"}, 400, "has no step nowhere; there are validate, manager, charge, notify"),
            ({"step": "validate"}, 400, "waits for nobody's word"),
            ({"step": "manager", "decision": "perhaps"}, 400, "decision"),
            ({"decision": "approve"}, 400, "step"),
            ({"step": "manager", "color": "red"}, 400, "color"),
        ):
            found = await site.refused("/v2/slips/l-1/signals", "POST", **body)
            assert found[0] == status, found
            assert words in found[2]
        assert (await site.refused("/v2/slips/nobody/signals", "POST", step="manager"))[0] == 404
        await ask(f"{site.url}/v2/slips/l-1/signals", "POST", json={"step": "manager", "decision": "deny"})
        await kept(site.shop, "l-1", "dead-lettered")


@in_loop
async def test_a_dead_letter_runs_again_from_a_step(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("order.v1", {"lost": True}, correlation_id="o-1")
        await kept(site.shop, "o-1", "dead-lettered")
        shown = await site.get("/v2/slips/o-1")
        step = shown["standing"]["againFrom"]
        status, answer, _ = await ask(f"{site.url}/v2/slips/o-1/reruns", "POST", json={"from": step})
        assert (status, answer) == (202, {"correlationId": "o-1", "from": step, "run": 1})
        await site.shop.ended("o-1", run=1)
        assert (await site.refused("/v2/slips/o-1/reruns", "POST", **{"from": "nowhere"}))[0] == 400
        assert (await site.refused("/v2/slips/o-1/reruns", "POST"))[0] == 400


@in_loop
async def test_a_slip_is_cancelled_while_it_is_under_way(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("loan.v1", {}, correlation_id="l-1")
        await until_waiting(site, "l-1")
        status, answer, _ = await ask(f"{site.url}/v2/slips/l-1/cancellation", "POST", json={"reason": "by mistake"})
        assert (status, answer) == (202, {"correlationId": "l-1"})
        await kept(site.shop, "l-1", "dead-lettered")
        again = await site.refused("/v2/slips/l-1/cancellation", "POST")
        assert again[:2] == (409, "FAILED_PRECONDITION")


@in_loop
async def test_a_step_is_paused_and_resumed(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("order.v1", {}, correlation_id="o-1")
        await kept(site.shop, "o-1", "completed")
        paused = {"reason": "the bank is away", "seconds": 60}
        status, answer, _ = await ask(f"{site.url}/v2/steps/charge/pause", "PUT", json=paused)
        assert (status, answer["paused"], answer["reason"]) == (200, True, "the bank is away")
        steps = {each["step"]: each for each in (await site.get("/v2/steps"))["steps"]}
        assert steps["charge"]["paused"] is True
        assert steps["charge"]["untilMs"] == answer["untilMs"]
        _, answer, _ = await ask(f"{site.url}/v2/steps/charge/pause", "DELETE")
        assert answer["paused"] is False
        assert not any(each["paused"] for each in (await site.get("/v2/steps"))["steps"])
        assert (await site.refused("/v2/steps/charge/pause", "PUT", seconds=-1))[0] == 400


@in_loop
async def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    async with looking(tmp_path, stuck_after_ms=1) as site:
        await site.shop.submit("loan.v1", {}, correlation_id="l-1")
        await site.shop.submit("lonely.v1", {}, correlation_id="s-1")
        await until_waiting(site, "l-1")
        await kept(site.shop, "s-1", "finished")
        await site.shop.submit("order.v1", {"lost": True}, correlation_id="o-1")
        await kept(site.shop, "o-1", "dead-lettered")
        await ask(f"{site.url}/v2/steps/charge/pause", "PUT", json={"reason": "the bank is away", "seconds": 60})
        await asyncio.sleep(0.01)  # longer than it takes to be stuck here
        seen = await site.slips.look(Seen(now_ms=0))
        assert [(each.correlation_id, each.step, each.going) for each in seen.slips.waiting] == [
            ("l-1", "manager", "approval")
        ]
        assert [(each.correlation_id, each.step) for each in seen.slips.stuck] == [("s-1", "nobody")]
        (failed,) = seen.slips.failed
        assert (failed.correlation_id, failed.step) == ("o-1", "ship")
        assert "no such address" in failed.going
        (held,) = seen.paused_steps
        assert (held.step, held.reason) == ("charge", "the bank is away")
        assert held.left_ms is not None
        while not (unserved := (await site.slips.look(Seen(now_ms=0))).unserved_topics):
            await asyncio.sleep(0)
        assert [(each.topic, each.step) for each in unserved] == [("internal.nobody.v1", "nobody")]


@in_loop
async def test_slips_and_steps_are_found(tmp_path: Path) -> None:
    async with looking(tmp_path) as site:
        await site.shop.submit("loan.v1", {}, correlation_id="l/1")
        await until_waiting(site, "l/1")
        hits = (await site.get("/v2/search?q=l/1"))["hits"]
        assert hits[0] == {"kind": "slip", "text": "l/1", "link": "#/slips/l%2F1"}
        assert {"kind": "step", "text": "manager"}.items() <= (await site.get("/v2/search?q=manag"))["hits"][0].items()
        assert (await site.get("/v2/search?q=nothing-like-it"))["hits"] == []


@in_loop
async def test_a_store_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    slips = Slips(fast(store=str(path)), is_expected=lambda: True)
    console = create_console(Sources(Numbers(), slips=slips))
    async with listening(console) as url:
        status, answer, _ = await ask(f"{url}/v2/slips")
        assert (status, answer["error"]) == (503, "UNAVAILABLE")
        assert "there is no store of slips at" in answer["message"]
        assert not path.exists(), "to look does not make one"
        with pytest.raises(Refused, match="SLIP_STORE"):
            await slips.look(Seen(now_ms=0))
        assert await Slips(fast(store=str(path)), is_expected=lambda: False).look(Seen(now_ms=0)) == Seen(now_ms=0)
        async with open_shop(path):
            status, answer, _ = await ask(f"{url}/v2/slips")
            assert (status, answer) == (200, {"slips": [], "more": False, "types": []})
    await console.close()


def test_jobs_are_known_from_what_steps_have_noted() -> None:
    first, second = "0199c0de-7f00-7000-8000-000000000001", "0199c0de-7f00-7000-8000-000000000002"
    steps = (
        RoutingStep("fetch", Status.OK, notes=f'{{"job": "{first}"}}'),
        RoutingStep("scan", Status.OK, notes="all well"),
    )
    payload = {"files": [{"jobId": second}], "job": "a clerk", "other": first.replace("7f00", "7f01")}
    event = Event(Envelope("1", "test", "c-1", routing_slip=steps), "order.v1", payload)
    assert sorted(jobs_of(event)) == [first, second]
