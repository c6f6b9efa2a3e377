"""Tasks that wait for a bundle."""

from __future__ import annotations

import asyncio

from slipstream.jobs.handed import Handed
from slipstream.jobs.task_runner import Outcome
from slipstream.pipeline.downloads.places import Places
from slipstream.pipeline.downloads.waiting import Bundle, Task, Waiting
from tests.client.loop import in_loop


def _task(name: str, host: str = "h", together_max: int = 512) -> Task:
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    return Task(Handed("t", name, "", b"", 1, 0.0), host, f"job-{host}", ended, together_max)


def _names(bundle: Bundle) -> list[str]:
    return [task.handed.id for task in bundle.tasks]


def _waiting(*tasks: Task, places: Places | None = None) -> Waiting:
    waiting = Waiting(places or Places(slots=2))
    for task in tasks:
        waiting.put(task)
    return waiting


@in_loop
async def test_hosts_take_turns() -> None:
    waiting = _waiting(_task("a1", "a"), _task("a2", "a"), _task("a3", "a"), _task("b1", "b"), _task("c1", "c"))
    assert _names(waiting.bundle(4, 0)) == ["a1", "b1", "c1", "a2"]
    assert _names(waiting.bundle(4, 0)) == ["a3"]
    assert len(waiting) == 0


@in_loop
async def test_the_surplus_is_the_newest_of_the_host_with_the_most_and_a_job_can_be_taken_out() -> None:
    waiting = _waiting(*(_task(f"{host}{number}", host) for host in "abc" for number in range(2)), _task("a2", "a"))
    assert [waiting.pop_surplus().handed.id for _ in range(3)] == ["a2", "c1", "b1"]
    removed = waiting.remove_where(lambda task: task.job_id == "job-a")
    assert ([task.handed.id for task in removed], len(waiting)) == (["a0", "a1"], 2)
    assert _names(waiting.bundle(4, 0)) == ["b0", "c0"]


@in_loop
async def test_a_host_without_a_place_waits_and_keeps_nobody_else_out() -> None:
    places = Places(slots=2, concurrency=1)
    waiting = _waiting(_task("a1", "a"), _task("a2", "a"), _task("b1", "b"), places=places)
    first = waiting.bundle(2, 0)
    assert _names(first) == ["a1", "b1"]
    assert _names(waiting.bundle(2, 0)) == []
    places.give_back("a", first.shares["a"])
    assert _names(waiting.bundle(2, 0)) == ["a2"]


@in_loop
async def test_a_place_that_nothing_came_of_is_given_back() -> None:
    places = Places(slots=2, concurrency=1)
    waiting = _waiting(_task("a1", "a"), _task("b1", "b"), places=places)
    assert set(waiting.bundle(1, 0).shares) == {"a"}
    assert _names(waiting.bundle(1, 0)) == ["b1"]


@in_loop
async def test_a_host_that_is_held_waits_until_then() -> None:
    places = Places(slots=2)
    waiting = _waiting(_task("a1", "a"), _task("b1", "b"), places=places)
    places.hold("a", 10.0)
    assert _names(waiting.bundle(9, now=5.0)) == ["b1"]
    assert waiting.ready_at(now=5.0) == 10.0
    assert _names(waiting.bundle(9, now=10.0)) == ["a1"]
    assert waiting.ready_at(now=10.0) is None


@in_loop
async def test_what_was_not_begun_comes_before_the_others() -> None:
    waiting = _waiting(_task("a1"), _task("a2"), _task("a3"))
    waiting.put_back(waiting.bundle(2, 0).tasks)
    assert len(waiting) == 3
    assert _names(waiting.bundle(3, 0)) == ["a1", "a2", "a3"]


@in_loop
async def test_a_task_that_nobody_waits_for_is_passed_over() -> None:
    gone = _task("gone")
    waiting = _waiting(gone, _task("here"))
    gone.ended.cancel()
    assert _names(waiting.bundle(2, 0)) == ["here"]


@in_loop
async def test_a_suspect_is_with_few_others_and_has_its_turn_next() -> None:
    waiting = _waiting(_task("a1", "a"), _task("s", "b", together_max=1), _task("c1", "c"))
    assert _names(waiting.bundle(9, 0)) == ["a1", "c1"]
    assert _names(waiting.bundle(9, 0)) == ["s"]


@in_loop
async def test_at_once_are_no_more_of_a_host_than_it_has_places() -> None:
    places = Places(slots=2, concurrency=4)
    waiting = _waiting(*(_task(f"a{number}", "a") for number in range(9)), places=places)
    assert len(waiting.bundle(9, 0, at_once=True).tasks) == 2


@in_loop
async def test_all_of_a_host_can_be_removed() -> None:
    waiting = _waiting(_task("a1", "a"), _task("b1", "b"), _task("a2", "a"))
    assert [task.handed.id for task in waiting.remove("a")] == ["a1", "a2"]
    assert (len(waiting), waiting.remove("x")) == (1, [])
