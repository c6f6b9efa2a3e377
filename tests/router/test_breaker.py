"""When a router is asked, and when its state changes."""

from __future__ import annotations

from slipstream.router.breaker import PAUSE_S, PAUSE_S_MAX, SETTLED_S, TIMEOUTS_MAX, Admission, Breaker

WHY = "it took too long"


def paused(now_s: float = 0.0) -> Breaker:
    """Return a breaker that has seen nothing but time-outs."""
    breaker = Breaker()
    for _ in range(TIMEOUTS_MAX):
        breaker.timed_out(now_s, breaker.admit(now_s), WHY)
    assert breaker.is_paused
    return breaker


def decide(breaker: Breaker, now_s: float) -> bool:
    """Let the router make a decision that is followed; return whether it works again with that."""
    breaker.answered(breaker.admit(now_s))
    return breaker.succeeded(now_s)


def test_time_outs_in_a_row_pause_it() -> None:
    breaker = Breaker()
    changes = [breaker.timed_out(0, breaker.admit(0), WHY) for _ in range(TIMEOUTS_MAX)]
    assert changes == [(True, False), *[(False, False)] * (TIMEOUTS_MAX - 2), (False, True)]
    assert breaker.admit(0.5) is Admission.REFUSED


def test_a_decision_between_time_outs_keeps_it_from_being_paused() -> None:
    breaker = Breaker()
    for _ in range(5):
        for _ in range(TIMEOUTS_MAX - 1):
            breaker.timed_out(0, breaker.admit(0), WHY)
        decide(breaker, 0)
    assert not breaker.is_paused


def test_errors_that_come_at_once_do_not_pause_it() -> None:
    breaker = Breaker()
    news = [breaker.failed(0, breaker.admit(0), "ValueError") for _ in range(100)]
    assert news == [True, *[False] * 99]
    assert breaker.admit(0) is Admission.ASKED


def test_after_a_pause_one_message_finds_out() -> None:
    breaker = paused()
    assert breaker.admit(PAUSE_S) is Admission.PROBE
    assert breaker.admit(PAUSE_S) is Admission.REFUSED
    breaker.answered(Admission.PROBE)
    assert breaker.admit(PAUSE_S) is Admission.ASKED


def test_pauses_grow_while_probes_time_out() -> None:
    breaker, now_s, pauses = paused(), 0.0, []
    for _ in range(8):
        began_s = now_s
        while breaker.admit(now_s) is not Admission.PROBE:
            now_s += PAUSE_S / 2
        pauses.append(now_s - began_s)
        assert breaker.timed_out(now_s, Admission.PROBE, WHY) == (False, False)
    assert pauses == [1, 2, 4, 8, 16, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]


def test_a_time_out_from_before_the_pause_does_not_lengthen_it() -> None:
    breaker = paused()
    breaker.timed_out(PAUSE_S / 2, Admission.ASKED, WHY)
    assert breaker.admit(PAUSE_S) is Admission.PROBE


def test_a_probe_that_nobody_waits_for_leaves_the_place_to_the_next() -> None:
    breaker = paused()
    breaker.given_up(breaker.admit(PAUSE_S))
    assert breaker.admit(PAUSE_S) is Admission.PROBE


def test_it_works_again_when_it_has_not_failed_for_a_while() -> None:
    breaker = paused()
    assert not decide(breaker, PAUSE_S)
    assert not breaker.is_well(PAUSE_S)
    assert breaker.is_well(SETTLED_S)
    assert decide(breaker, SETTLED_S)
    assert breaker.reason == ""


def test_it_is_not_well_only_because_nothing_was_asked() -> None:
    assert not paused().is_well(1_000_000)
    breaker = Breaker()
    breaker.failed(0, breaker.admit(0), "ValueError")
    assert not breaker.is_well(1_000_000)


def test_one_that_fails_now_and_then_changes_its_state_rarely() -> None:
    breaker, changes = Breaker(), 0
    for tenth in range(600):
        now_s = tenth / 10
        changes += breaker.failed(now_s, breaker.admit(now_s), "x") if tenth % 2 else decide(breaker, now_s)
    assert changes == 1
