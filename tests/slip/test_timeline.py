"""Histories in, rows out: what was told, in which order it is shown, and what is going on."""

from __future__ import annotations

import datetime as dt
from typing import Any

from msgspec.structs import replace

from slipstream.slip import Envelope, Event, Progress, RoutingStep, Status, StepError, hints
from slipstream.slip.ledger import Held
from slipstream.slip.presence import Presence
from slipstream.slip.standing import Standing, Surroundings
from slipstream.slip.timeline import Known, Timeline, timeline
from slipstream.slip.unserved import Unserved

START = dt.datetime(2030, 1, 31, 12, 0, tzinfo=dt.UTC)
AWAY = StepError("bank_away", "no answer", retryable=True)


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def told(*lines: tuple[float, str, str] | tuple[float, str, str, dict[str, Any]]) -> tuple[Progress, ...]:
    """(seconds, kind, step, and whatever else there is to say)"""
    made: list[Progress] = []
    for seconds, kind, step, *more in lines:
        given: dict[str, Any] = {"correlation_id": "c-1", "type": "order.v1", **(more[0] if more else {})}
        made.append(Progress(kind=kind, step=step, at=at(seconds), **given))  # type: ignore[arg-type]
    return tuple(made)


def slip(*steps: RoutingStep) -> dict[int, Event]:
    return {0: Event(Envelope("1", "test", "c-1", routing_slip=steps), "order.v1")}


def step(step_id: str, status: str = "PENDING", **given: Any) -> RoutingStep:
    return RoutingStep(step_id, Status(status), **given)


def seen(known: Known, now: float = 10, **held: Held) -> Timeline:
    return timeline(known, held, at(now))


def ms(seconds: float) -> int:
    return round(at(seconds).timestamp() * 1000)


def standing_among(known: Known, now: float, workers: dict[str, Presence], **unserved: str) -> Standing:
    reported = {topic.replace("_", "."): Unserved(step, ms(0)) for topic, step in unserved.items()}
    return timeline(known, {}, at(now), Surroundings(workers, reported)).standing


def states(found: Timeline, run: int = 0) -> list[tuple[str, int, str]]:
    return [(row.step, row.attempt, row.state) for row in found.runs[run].all_rows]


# Rows


def test_waiting_and_working_are_told_apart() -> None:
    history = told(
        (0, "planned", "", {"steps": ("router", "a", "b")}),
        (1, "started", "a"),
        (3, "retried", "a", {"error": AWAY}),
        (6, "started", "a", {"attempt": 1}),
        (7, "finished", "a", {"attempt": 1}),
        (8, "started", "b"),
        (9, "finished", "b"),
        (9.5, "completed", ""),
    )
    found = seen(Known(correlation_id="c-1", told=history))
    assert (found.state, found.begun_at, found.ended_at, found.type) == ("completed", at(0), at(9.5), "order.v1")
    times = [(row.queued_at, row.began_at, row.ended_at) for row in found.runs[0].rows]
    assert times == [(at(0), at(1), at(3)), (at(3), at(6), at(7)), (at(7), at(8), at(9))]
    assert states(found) == [("a", 0, "retried"), ("a", 1, "done"), ("b", 0, "done")]
    assert found.standing.going == "completed"


def test_what_came_in_disorder_is_in_order() -> None:
    history = told((3, "completed", ""), (2, "finished", "a"), (0, "planned", ""), (1, "started", "a"))
    found = seen(Known(correlation_id="c-1", told=history))
    assert states(found) == [("a", 0, "done")]
    assert found.runs[0].rows[0].queued_at == at(0)


def test_what_lies_ahead_is_pending_and_the_next_is_queued() -> None:
    history = told((0, "planned", ""), (1, "started", "a"), (2, "finished", "a"))
    newest = slip(step("router", "OK"), step("a", "OK"), step("b"), step("c"))
    found = seen(Known(correlation_id="c-1", told=history, newest=newest))
    assert states(found) == [("a", 0, "done"), ("b", 0, "queued"), ("c", 0, "pending")]
    assert found.runs[0].rows[1].queued_at == at(2)
    assert (found.standing.going, found.standing.step, found.standing.since) == ("not taken up", "b", at(2))


def test_without_the_slip_the_plan_says_what_lies_ahead() -> None:
    history = told((0, "planned", "", {"steps": ("router", "a", "b", "c")}), (1, "started", "a"))
    assert states(seen(Known(correlation_id="c-1", told=history))) == [
        ("a", 0, "working"),
        ("b", 0, "pending"),
        ("c", 0, "pending"),
    ]


def test_who_tells_nothing_is_seen_in_the_slip() -> None:
    """A worker of somebody else; and a step that a planner has skipped."""
    newest = slip(
        step("router", "OK", started_at=at(0)),
        step("foreign", "OK", started_at=at(1), ended_at=at(2)),
        step("b", "SKIP", notes="not needed"),
        step("c"),
    )
    found = seen(Known(correlation_id="c-1", told=told((0, "planned", "")), newest=newest))
    assert states(found) == [("foreign", 0, "done"), ("b", 0, "skipped"), ("c", 0, "queued")]
    assert found.runs[0].rows[1].detail == "not needed"


def test_an_end_that_is_not_told_yet_is_seen_in_the_slip() -> None:
    newest = slip(step("router", "OK"), step("a", "ERROR", attempt=0, ended_at=at(2), error=AWAY))
    history = told((0, "planned", ""), (1, "started", "a"))
    (row,) = seen(Known(correlation_id="c-1", told=history, newest=newest)).runs[0].rows
    assert (row.state, row.ended_at, row.error) == ("failed", at(2), AWAY)


def test_a_skipped_step_says_why() -> None:
    history = told(
        (0, "planned", ""),
        (1, "skipped", "a"),
        (2, "started", "b"),
        (3, "skipped", "b", {"detail": "no memory for guests"}),
        (4, "started", "c"),
        (5, "failed", "c", {"error": AWAY}),
        (6, "skipped", "d"),
        (7, "dead-lettered", "c", {"error": AWAY}),
    )
    found = seen(Known(correlation_id="c-1", told=history))
    details = {row.step: row.detail for row in found.runs[0].rows if row.state == "skipped"}
    assert details == {"a": "as its unless holds", "b": "no memory for guests", "d": "as c failed"}
    assert (found.standing.going, found.standing.step, found.standing.error) == ("dead-lettered", "c", AWAY)


def test_a_step_that_may_fail_has_failed_and_the_message_goes_on() -> None:
    history = told(
        (0, "planned", ""),
        (1, "started", "a"),
        (2, "failed", "a", {"error": AWAY}),
        (2.1, "skipped", "a", {"error": AWAY}),
        (3, "skipped", "b"),
    )
    found = seen(Known(correlation_id="c-1", told=history))
    assert states(found) == [("a", 0, "failed"), ("b", 0, "skipped")]
    assert found.runs[0].rows[0].optional
    assert found.runs[0].rows[1].detail == "as its unless holds"


def test_who_takes_it_up_after_a_death_is_counted() -> None:
    history = told((0, "planned", ""), (1, "started", "a"), (5, "started", "a", {"by": "second"}))
    (row,) = seen(Known(correlation_id="c-1", told=history)).runs[0].rows
    assert (row.taken, row.began_at, row.queued_at, row.by) == (2, at(5), at(0), "second")


TAKEN = Known(correlation_id="c-1", told=told((0, "planned", ""), (5, "started", "a", {"by": "host:1"})))
PLANNED = Known(correlation_id="c-1", told=told((0, "planned", "")), newest=slip(step("router", "OK"), step("a")))
TOPIC = {"a": "internal.a.v1"}


def test_a_step_is_worked_on_while_its_worker_is_heard_of() -> None:
    standing = standing_among(TAKEN, 20, {"host:1": Presence(ms(0), ms(18), TOPIC)})
    assert (standing.going, standing.since, standing.by) == ("at work", at(5), "host:1")
    unknown = standing_among(TAKEN, 20, {})
    assert (unknown.going, unknown.by) == ("at work", "host:1"), "not every worker writes heartbeats"


def test_a_step_whose_worker_has_died_is_told_from_one_that_is_not_taken() -> None:
    dead = standing_among(TAKEN, 60, {"host:1": Presence(ms(0), ms(6), TOPIC)})
    assert (dead.going, dead.by, dead.since) == ("worker lost", "host:1", at(5))
    assert dead.reason == "it has died, or hangs: silent for 54 s"
    stopped = standing_among(TAKEN, 7, {"host:1": Presence(ms(0), ms(6), TOPIC, stopped=True)})
    assert (stopped.going, stopped.reason) == ("worker lost", "it stopped 1 s ago")
    restarted = standing_among(TAKEN, 20, {"host:1": Presence(ms(9), ms(19), TOPIC)})
    assert (restarted.going, restarted.reason) == ("worker lost", "it was restarted since")


def test_a_step_that_is_not_taken_yet_says_from_where_and_which_workers_run() -> None:
    standing = standing_among(PLANNED, 20, {"host:1": Presence(ms(0), ms(18), TOPIC)})
    assert (standing.going, standing.topic, standing.workers) == ("not taken up", "internal.a.v1", ("host:1",))
    others = {"dead:1": Presence(ms(0), ms(1), TOPIC), "host:2": Presence(ms(0), ms(19), {"b": "internal.b.v1"})}
    left = standing_among(PLANNED, 20, others)
    assert (left.workers, left.reason) == ((), "the last was dead:1: it has died, or hangs: silent for 19 s")
    assert standing_among(PLANNED, 20, {}).reason == ""


def test_a_topic_that_nothing_subscribes_to_is_named_with_the_worker_that_takes_from_another() -> None:
    reported = {"internal_a_v1": "a"}
    alone = standing_among(PLANNED, 2, {}, **reported)
    assert (alone.going, alone.topic) == ("no worker", "internal.a.v1")
    assert alone.reason == "no worker has ever subscribed to internal.a.v1"
    elsewhere = standing_among(PLANNED, 2, {"host:1": Presence(ms(0), ms(1), {"a": "internal.b.v1"})}, **reported)
    assert elsewhere.reason.endswith("; the worker host:1 does a from internal.b.v1")
    assert standing_among(TAKEN, 6, {}, **reported).going == "at work", "it was taken after all"


# Undoing, runs and branches


def test_undoing_has_rows_of_its_own_also_before_it_begins() -> None:
    history = told(
        (0, "planned", ""),
        (1, "started", "a"),
        (2, "finished", "a"),
        (3, "started", "b"),
        (4, "failed", "b", {"error": AWAY}),
    )
    done = step("a", "OK", attributes={hints.UNDO: "{}"})
    newest = slip(step("router", "OK"), done, step("b", "ERROR", error=AWAY))
    found = seen(Known(correlation_id="c-1", told=history, newest=newest))
    (undoing,) = found.runs[0].undoing
    assert (undoing.step, undoing.undoes, undoing.state) == ("undo:a", "a", "queued")
    assert (found.standing.going, found.standing.step) == ("not taken up", "undo:a")

    undone = told((5, "started", "undo:a"), (6, "compensated", "undo:a"), (7, "dead-lettered", "b", {"error": AWAY}))
    found = seen(Known(correlation_id="c-1", told=history + undone, newest=newest))
    assert [(row.undoes, row.state) for row in found.runs[0].undoing] == [("a", "done")]
    assert found.standing.again_from == "a"


def test_runs_are_told_apart() -> None:
    first = told((0, "planned", ""), (1, "started", "b"), (2, "failed", "b"), (3, "dead-lettered", "b"))
    second = told((5, "rerun", "", {"run": 1}), (6, "started", "b", {"attempt": 1, "run": 1}))
    a = step("a", "OK", started_at=at(0), ended_at=at(0.5))
    newest = {**slip(step("router", "OK"), a, step("b", "ERROR", attempt=0, error=AWAY))}
    newest[1] = slip(step("router", "OK"), a, step("b", attempt=1), step("c"))[0]
    found = seen(Known(correlation_id="c-1", told=first + second, newest=newest))
    assert [(run.number, run.state, run.begun_at) for run in found.runs] == [
        (0, "dead-lettered", at(0)),
        (1, "under way", at(5)),
    ]
    assert states(found, 0) == [("a", 0, "done"), ("b", 0, "failed")]
    assert states(found, 1) == [("b", 1, "working"), ("c", 0, "pending")]


def test_branches_are_timelines_of_their_own() -> None:
    left = Known(correlation_id="c-1/both/left", branch="left", told=told((1, "planned", ""), (2, "started", "x")))
    right = replace(left, correlation_id="c-1/both/right", branch="right")
    right = replace(right, told=told((1, "planned", ""), (2, "completed", "")))
    history = told((0, "planned", ""), (1, "forked", "both", {"detail": "2 branches, all wanted"}))
    found = seen(Known(correlation_id="c-1", told=history, branches={("both", 0): (left, right)}))
    (row,) = found.runs[0].rows
    assert (row.kind, row.state, [branch.branch for branch in row.branches]) == ("fork", "waiting", ["left", "right"])
    assert found.standing.going == "branches"
    ((name, standing),) = found.standing.branches
    assert (name, standing.going, standing.step) == ("c-1/both/left", "at work", "x")


# What is going on


def test_a_step_that_waits_says_for_what_and_until_when() -> None:
    history = told((0, "planned", ""), (1, "waiting", "manager", {"detail": "approval"}))
    newest = slip(step("manager", attributes={hints.WAIT: "approval", hints.DEADLINE_MS: "60000"}))
    standing = seen(Known(correlation_id="c-1", told=history, newest=newest)).standing
    assert (standing.going, standing.step, standing.since, standing.until) == ("approval", "manager", at(1), at(61))


def test_a_pause_before_a_retry_ends_at_a_time() -> None:
    history = told((0, "planned", ""), (1, "started", "a"), (2, "retried", "a", {"error": AWAY}))
    not_before = str(round(at(20).timestamp() * 1000))
    newest = slip(step("a", attempt=1, attributes={hints.NOT_BEFORE: not_before}))
    known = Known(correlation_id="c-1", told=history, newest=newest)
    assert states(seen(known)) == [("a", 0, "retried"), ("a", 1, "queued")]
    standing = seen(known).standing
    assert (standing.going, standing.step, standing.until) == ("retry pause", "a", at(20))
    standing = seen(known, now=60).standing
    assert (standing.going, standing.since) == ("not taken up", at(20))


def test_a_step_that_is_paused_says_why() -> None:
    history = told((0, "planned", "", {"steps": ("router", "a")}))
    standing = seen(Known(correlation_id="c-1", told=history), a=Held("the bank is away", None)).standing
    assert (standing.going, standing.step, standing.reason) == ("paused", "a", "the bank is away")


def test_a_message_whose_steps_are_done_waits_for_the_router() -> None:
    history = told((0, "planned", ""), (1, "started", "a"), (2, "finished", "a"))
    known = Known(correlation_id="c-1", told=history, newest=slip(step("a", "OK")))
    assert (seen(known).standing.going, seen(known).standing.since) == ("ending", at(2))
