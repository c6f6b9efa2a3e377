"""What is wrong, in words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from slipstream.api.events import RetryingMessage
from slipstream.api.overview import Acknowledgement, Part, Problem
from slipstream.api.server import ServerCondition
from slipstream.broker.delivery import ACK_TIMEOUT
from slipstream.console.attention import Attention
from slipstream.console.problems import (
    LEASE_RAN_OUT,
    MARK_UNKNOWN,
    SHOWN_MAX,
    DeadLettersSeen,
    GroupSeen,
    JobsSeen,
    PausedStep,
    Seen,
    SlipSeen,
    SlipsSeen,
    TableSeen,
    Unseen,
    UnservedTopic,
    first,
    problems,
)
from slipstream.console.settings import Thresholds

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
QUIET = Seen(now_ms=NOW_MS)


def told(**seen: Any) -> list[Problem]:
    return problems(replace(QUIET, **seen), Thresholds())


def only(**seen: Any) -> Problem:
    (problem,) = told(**seen)
    return problem


def group(**fields: Any) -> GroupSeen:
    return GroupSeen(**{"topic": "tasks.enrich", "group": "enrichers", "lag": 0, **fields})


def test_nothing_wrong_is_nothing_to_say() -> None:
    busy = group(lag=40, in_flight=40, consumers=2, oldest_ms=900)
    running = Part(name="broker", state="running", since_ms=NOW_MS - 1_000)
    assert told(groups=(busy, group()), parts=(running,)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"away": "connection refused", "away_ms": MINUTE_MS},
        {"conditions": (ServerCondition(kind="router", level="warning", text="router r is paused", detail="timeout"),)},
    ],
)
def test_what_is_wrong_with_the_broker_leads_to_its_log_where_there_is_one(wrong: dict[str, Any]) -> None:
    running = Part(name="broker", state="running", since_ms=NOW_MS - 1_000)
    problem = only(parts=(running,), **wrong)
    assert (problem.link, problem.action) == ("#/?part=broker", "Show log")
    assert only(**wrong).action == "", "without slipstream up there is none to show"


# Groups


def test_a_group_that_finishes_nothing_stands_still() -> None:
    still = group(lag=1_204, consumers=3, still_ms=4 * MINUTE_MS, oldest_ms=4 * MINUTE_MS)
    problem = only(groups=(still,))
    assert problem.text == "group enrichers of tasks.enrich stands still for 4 min: 1,204 waiting"
    assert problem.level == "error"
    assert problem.link == "#/groups/tasks.enrich/enrichers"
    assert "3 consumers, and nothing in hand" in problem.detail


def test_what_consumers_hold_without_end_points_to_what_they_depend_on() -> None:
    held = group(lag=20, in_flight=12, consumers=1, still_ms=2 * MINUTE_MS)
    problem = only(groups=(held,))
    assert problem.text == "group enrichers of tasks.enrich stands still for 2 min: 8 waiting"
    assert problem.detail == "1 consumer, with 12 in hand and none finished: is a service away that they need?"
    assert problem.level == "warning", "not yet for long"


def test_a_group_without_consumers_says_so() -> None:
    left = group(lag=7, still_ms=5 * MINUTE_MS, oldest_ms=6 * MINUTE_MS)
    problem = only(groups=(left,))
    assert problem.text == (
        "group enrichers of tasks.enrich has no consumer for 5 min: 7 waiting, the oldest for 6 min"
    )
    assert problem.level == "error"
    assert problem.detail == "start a worker of this group, or delete the group if it is no longer used"


def test_a_moment_without_a_consumer_is_nothing() -> None:
    assert told(groups=(group(lag=7, still_ms=10_000, oldest_ms=11_000),)) == []


def test_what_is_all_in_hand_is_being_worked_at() -> None:
    long_work = group(lag=4, in_flight=4, consumers=1, still_ms=30 * MINUTE_MS, oldest_ms=30 * MINUTE_MS)
    assert told(groups=(long_work,)) == []


def test_what_waits_for_another_attempt_needs_no_more_consumers() -> None:
    retried = group(lag=1, retrying=1, consumers=1, oldest_ms=30 * MINUTE_MS, worst=worst(2))
    assert told(groups=(retried,)) == []


def test_messages_that_are_not_due_wait_for_nobody() -> None:
    assert told(groups=(group(lag=50, delayed=50, still_ms=30 * MINUTE_MS, oldest_ms=30 * MINUTE_MS),)) == []


@pytest.mark.parametrize(
    ("grown", "over_ms", "level", "text", "detail"),
    [
        (0, 10_000, "warning", "is behind: 90,000 waiting, the oldest for 12 min", "in a minute it will be known"),
        (40, 5 * MINUTE_MS, "warning", "is behind: 90,000 waiting", "as many messages come in as it finishes"),
        (9_000, 5 * MINUTE_MS, "warning", "falls further behind: 90,000 waiting, 9,000 more in 5 min", "start more"),
        (-9_000, 5 * MINUTE_MS, "notice", "catches up: 90,000 waiting, 9,000 fewer in 5 min", "about 50 min left"),
    ],
)
def test_a_lag_that_grows_is_told_from_one_that_shrinks(
    grown: int, over_ms: int, level: str, text: str, detail: str
) -> None:
    behind = group(lag=90_000, in_flight=100, consumers=2, oldest_ms=12 * MINUTE_MS, grown=grown, grown_over_ms=over_ms)
    problem = only(groups=(behind,))
    assert (problem.level, text in problem.text, detail in problem.detail) == (level, True, True), problem
    assert problem.key == "group tasks.enrich enrichers behind"
    expected = MARK_UNKNOWN if over_ms < MINUTE_MS else int(grown > 40)
    assert problem.mark == expected, "it is shown again to those who acknowledged a lag that did not grow"


def worst(attempts: int, *, is_same_error: bool = True) -> RetryingMessage:
    return RetryingMessage(0, 2, attempts, "DecodeError: JSON is malformed", is_same_error)


def test_a_poison_message_is_no_lack_of_consumers() -> None:
    poisoned = group(lag=1, retrying=1, consumers=1, oldest_ms=5 * MINUTE_MS, worst=worst(15))
    problem = only(groups=(poisoned,))
    assert problem.text == (
        "poison message tasks.enrich/0/2 has failed 15 times with the same error in group enrichers"
    )
    assert problem.detail.startswith("DecodeError: JSON is malformed. More consumers do not help")
    assert (problem.level, problem.link, problem.action) == ("error", "#/groups/tasks.enrich/enrichers", "Show message")
    assert only(groups=(replace(poisoned, worst=worst(3)),)).level == "warning"


def test_a_few_retries_are_no_poison_message() -> None:
    assert told(groups=(group(lag=1, retrying=1, consumers=1, oldest_ms=900, worst=worst(2)),)) == []
    others = group(lag=1, retrying=1, consumers=1, oldest_ms=900, worst=worst(5, is_same_error=False))
    assert told(groups=(others,)) == [], "a service that is away for a moment fails in several ways"
    assert only(groups=(replace(others, worst=worst(6, is_same_error=False)),)).text.startswith("poison message")


def test_a_group_with_a_poison_message_may_be_behind_as_well() -> None:
    both = group(lag=900, retrying=2, consumers=1, oldest_ms=9 * MINUTE_MS, worst=worst(4))
    poison, behind = sorted(told(groups=(both,)), key=lambda problem: problem.key, reverse=True)
    assert "1 other message of the group are retried too" in poison.detail
    assert behind.text.startswith("group enrichers of tasks.enrich is behind: 900 waiting")


def test_a_parked_consumer_is_shown() -> None:
    one = only(groups=(group(lag=3, in_flight=3, consumers=2, parked=1, parked_owner="w-1"),))
    assert (one.level, one.text) == ("warning", "group enrichers of tasks.enrich: 1 of 2 consumers is parked")
    assert one.detail == (
        "the leases of w-1 ran out without one ack; it gets no messages until it acks, extends or reconnects: "
        "restart it"
    )
    two = only(groups=(group(lag=3, in_flight=3, consumers=3, parked=2, parked_owner="w-1"),))
    assert "without one ack, w-1 for one; they get no messages until they ack" in two.detail
    alone = only(groups=(group(lag=3, in_flight=3, consumers=1, parked=1),))
    assert (alone.level, alone.text) == ("error", "group enrichers of tasks.enrich: its only consumer is parked")
    still = only(groups=(group(lag=3, consumers=1, parked=1, still_ms=9 * MINUTE_MS, oldest_ms=9 * MINUTE_MS),))
    assert still.text == "group enrichers of tasks.enrich: its only consumer is parked, 3 waiting", "and no second item"


@pytest.mark.parametrize(
    ("lag", "level", "text"),
    [(3, "warning", "is paused: 3 waiting"), (0, "notice", "is paused")],
)
def test_a_paused_group_is_told_and_not_that_it_stands(lag: int, level: str, text: str) -> None:
    problem = only(groups=(group(lag=lag, paused=True, still_ms=60 * MINUTE_MS, oldest_ms=60 * MINUTE_MS),))
    assert (problem.level, problem.text) == (level, f"group enrichers of tasks.enrich {text}")


def test_a_message_that_only_parked_consumers_have_is_not_poison() -> None:
    held = replace(worst(9), error=LEASE_RAN_OUT)
    only(groups=(group(lag=1, in_flight=1, consumers=1, parked=1, worst=held),))
    assert len(told(groups=(group(lag=1, in_flight=1, consumers=1, parked=1, worst=worst(9)),))) == 2
    assert only(groups=(group(lag=1, in_flight=1, consumers=1, worst=held),)).text.startswith("poison message")
    assert LEASE_RAN_OUT == ACK_TIMEOUT


def test_names_are_safe_in_links() -> None:
    odd = replace(group(lag=5, still_ms=4 * MINUTE_MS, consumers=1), topic="a/b", group="c?d#e")
    assert only(groups=(odd,)).link == "#/groups/a%2Fb/c%3Fd%23e"


# The broker and the parts


def test_a_broker_that_is_away_comes_first() -> None:
    first, second = told(
        away="nobody listens there", away_ms=12_000, groups=(group(lag=10**6, consumers=1, still_ms=10**7),)
    )
    assert first.text == "the broker has not answered for 12 s: what is shown is from before"
    assert (first.level, first.detail) == ("error", "nobody listens there")
    assert second.link.startswith("#/groups/")


def test_a_broker_that_refuses_messages_says_why() -> None:
    problem = only(trouble="the disk is full")
    assert (problem.level, problem.text, problem.detail) == (
        "error",
        "the broker takes no messages",
        "the disk is full",
    )


@pytest.mark.parametrize(
    ("part", "level", "text"),
    [
        (
            Part(name="pipeline", state="crashed", restarts=3, since_ms=NOW_MS),
            "error",
            "part pipeline has crashed, and was restarted 3 times before",
        ),
        (Part(name="pipeline", state="crashed", since_ms=NOW_MS), "error", "part pipeline has crashed"),
        (
            Part(name="slips", state="running", restarts=1, since_ms=NOW_MS - 30_000),
            "warning",
            "part slips was restarted once, last 30 s ago",
        ),
        (Part(name="jobs", state="stopped", since_ms=NOW_MS), "warning", "part jobs is stopped"),
        (
            Part(name="jobs", state="starting", since_ms=NOW_MS - 5 * MINUTE_MS),
            "warning",
            "part jobs has been starting for 5 min",
        ),
        (
            Part(name="jobs", state="waiting", since_ms=NOW_MS - 5 * MINUTE_MS),
            "warning",
            "part jobs has been waiting for 5 min",
        ),
    ],
)
def test_a_part_that_does_not_run_is_told(part: Part, level: str, text: str) -> None:
    problem = only(parts=(part,))
    assert (problem.level, problem.text) == (level, text)


def test_a_restart_of_long_ago_is_forgotten() -> None:
    assert told(parts=(Part(name="slips", state="running", restarts=2, since_ms=NOW_MS - 60 * MINUTE_MS),)) == []
    assert told(parts=(Part(name="slips", state="starting", since_ms=NOW_MS - 2_000),)) == []


def test_why_a_part_has_crashed_stands_beside_it() -> None:
    crashed = Part(name="jobs", state="crashed", reason="exit code 5: the port is in use", since_ms=NOW_MS)
    assert only(parts=(crashed,)).detail == "exit code 5: the port is in use"


# The rest


def test_dead_letters_are_a_problem_as_long_as_they_are_there() -> None:
    problem = only(dead_letters=(DeadLettersSeen(topic="orders", total=40),))
    assert (problem.text, problem.mark) == ("40 messages of orders are dead-lettered", 40)
    assert (problem.link, problem.action) == ("#/dead-letters?topic=orders", "Redrive…")
    assert only(dead_letters=(DeadLettersSeen(topic="orders", total=1),)).text == "1 message of orders is dead-lettered"


def test_dead_letters_of_the_bus_are_in_a_topic_of_their_own() -> None:
    dead = (DeadLettersSeen(topic="orders", total=2, kept_in="orders.DLQ"),)
    problem = only(dead_letters=dead, has_bus_dead_letters=True)
    assert (problem.link, problem.action) == ("#/bus-dead-letters?topic=orders", "Redrive…")
    assert problem.detail == "fix the cause, then redrive them: slipstream bus dlq redrive orders"
    problem = only(dead_letters=dead)
    assert (problem.link, problem.action) == ("#/topics/orders.DLQ", "Show messages"), "in the broker's own process"


def slip(name: str, minutes: float, going: str = "not taken up") -> SlipSeen:
    return SlipSeen(correlation_id=name, step="charge", going=going, for_ms=round(minutes * MINUTE_MS))


def test_one_stuck_slip_is_named_and_several_are_counted() -> None:
    one = only(slips=SlipsSeen(stuck=(slip("c-1", 12),)))
    assert (one.level, one.text) == ("warning", "1 slip is stuck, for 12 min")
    assert (one.detail, one.link) == ("c-1 at charge: not taken up", "#/slips/c-1")
    two = only(slips=SlipsSeen(stuck=(slip("c-1", 12), slip("c-2", 7))))
    assert (two.text, two.link) == ("2 slips are stuck, the longest for 12 min", "#/slips?state=stuck")
    many = only(slips=SlipsSeen(stuck=(slip("c-1", 12), slip("c-2", 7)), more_stuck=True))
    assert many.text == "more than 2 slips are stuck, the longest for 12 min"


def test_slips_that_wait_for_a_word() -> None:
    problem = only(slips=SlipsSeen(waiting=(slip("c-1", 3, "approval"), slip("c-2", 1, "approval"))))
    assert (problem.level, problem.text) == ("notice", "2 slips wait for a decision, the longest for 3 min")
    assert problem.link == "#/slips?state=waiting"


def test_slips_that_failed_are_a_problem_until_they_are_run_again() -> None:
    failed = replace(slip("c-1", 3, "rejected: no such address"), at_ms=7)
    one = only(slips=SlipsSeen(failed=(failed,), dead_letters=1))
    assert (one.level, one.text) == ("warning", "1 slip failed and was not run again, 3 min ago")
    assert (one.detail, one.link) == ("c-1 at charge: rejected: no such address", "#/slips/c-1")
    assert (one.action, one.mark) == ("Run again…", 7)
    many = only(slips=SlipsSeen(failed=(slip("c-2", 1), slip("c-1", 3)), more_failed=True, dead_letters=70))
    assert many.text == "70 slips failed and were not run again, the last 1 min ago"
    assert many.link == "#/slips?state=dead-lettered"


def test_a_paused_step() -> None:
    held = PausedStep(step="charge", reason="the bank is away", left_ms=90_000)
    assert only(paused_steps=(held,)).text == "step charge is paused for another 1 min: the bank is away"
    assert only(paused_steps=(PausedStep(step="charge"),)).text == "step charge is paused"


def test_a_topic_that_no_worker_subscribes_to() -> None:
    problem = only(unserved_topics=(UnservedTopic(topic="internal.bot.v1", step="bot", for_ms=1_000),))
    assert (problem.level, problem.text) == ("error", "no worker for step bot: nothing subscribes to internal.bot.v1")


def test_downloads_that_failed_are_a_problem_until_they_are_replayed() -> None:
    problem = only(jobs=JobsSeen(dead_letters=2, newest_id="j-1", newest_reason="not found", newest_ms=9))
    assert (problem.text, problem.detail) == (
        "2 downloads failed and were not replayed",
        "the last of job j-1: not found",
    )
    assert (problem.link, problem.action, problem.mark) == ("#/jobs/dead-letters", "Replay…", 9)


def test_a_table_is_behind_when_it_has_something_to_read_and_is_not_written() -> None:
    late = TableSeen(table="job_logs", lag=5_000, written_ms_ago=8 * MINUTE_MS, unread_ms=6 * MINUTE_MS)
    problem = only(tables=(late, replace(late, table="messages", unread_ms=1_000)))
    assert problem.text == "table job_logs is behind: 5,000 messages not read, last written 8 min ago"
    assert problem.link == "#/pipeline/job_logs"
    both = only(tables=(late, replace(late, table="messages", lag=9_000)))
    assert both.text == "2 tables are behind: 9,000 messages not read, last written 8 min ago"
    assert told(tables=(replace(late, lag=0),)) == []


def test_what_cannot_be_seen_is_said() -> None:
    problem = only(unseen=(Unseen(what="jobs", reason="nobody answers there", link="#/jobs"),))
    assert (problem.level, problem.text, problem.detail) == ("warning", "jobs cannot be seen", "nobody answers there")


def test_the_worst_comes_first_and_of_two_as_bad_the_larger() -> None:
    found = told(
        groups=(
            group(group="small", lag=3, consumers=1, still_ms=10 * MINUTE_MS),
            group(group="large", lag=900, consumers=1, still_ms=10 * MINUTE_MS),
            group(group="held", lag=0, paused=True),
        ),
        dead_letters=(DeadLettersSeen(topic="orders", total=1),),
    )
    assert [problem.level for problem in found] == ["error", "error", "warning", "notice"]
    assert [problem.link for problem in found[:2]] == ["#/groups/tasks.enrich/large", "#/groups/tasks.enrich/small"]


def test_nobody_reads_a_thousand_of_them() -> None:
    many = tuple(group(group=f"g{n}", lag=n, consumers=1, still_ms=10 * MINUTE_MS) for n in range(1, SHOWN_MAX + 6))
    found = first(told(groups=many), NOW_MS)
    assert len(found) == SHOWN_MAX + 1
    assert found[-1].text == "and 5 problems more"


def test_what_is_acknowledged_hides_nothing_new() -> None:
    attention = Attention("")
    old = told(groups=tuple(group(group=f"g{n}", lag=9, consumers=1, still_ms=10**7) for n in range(SHOWN_MAX)))
    attention.recall(old, NOW_MS)
    for problem in old:
        attention.acknowledge(problem.key, Acknowledgement(by="Ada", at_ms=NOW_MS))
    new = only(groups=(group(lag=0, paused=True),))
    shown = first(attention.recall([*old, new], NOW_MS), NOW_MS)
    assert (shown[0].key, shown[-1].text) == (new.key, "and 1 problem more")


def test_the_thresholds_are_settings() -> None:
    seen = replace(QUIET, groups=(group(lag=5, consumers=1, still_ms=2_000),))
    assert problems(seen, Thresholds()) == []
    (problem,) = problems(seen, Thresholds(standing_ms=1_000, standing_error_ms=2_000))
    assert problem.level == "error"


def test_every_problem_has_a_key_of_its_own() -> None:
    found = told(
        away="gone",
        trouble="full",
        parts=(
            Part(name="jobs", state="crashed", since_ms=NOW_MS),
            Part(name="slips", state="stopped", since_ms=NOW_MS),
        ),
        groups=(
            group(lag=5, consumers=2, parked=1, worst=worst(4), still_ms=10 * MINUTE_MS),
            group(group="other", lag=5, paused=True),
        ),
        dead_letters=(DeadLettersSeen(topic="orders", total=1), DeadLettersSeen(topic="parcels", total=1)),
        slips=SlipsSeen(stuck=(slip("a", 9),), waiting=(slip("b", 9),), failed=(slip("c", 9),)),
        paused_steps=(PausedStep(step="charge"),),
        jobs=JobsSeen(dead_letters=1),
        tables=(TableSeen(table="t", lag=1, written_ms_ago=10**7, unread_ms=10**7),),
        unseen=(Unseen(what="slips", reason="", link=""), Unseen(what="jobs", reason="", link="")),
    )
    keys = [problem.key for problem in found]
    assert all(keys)
    assert len(set(keys)) == len(keys) == 18
