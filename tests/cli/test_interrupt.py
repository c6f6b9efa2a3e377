from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from slipstream.cli.interrupt import Interrupt


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_while_waiting_it_ends_the_waiting() -> None:
    def items() -> Iterator[str]:
        yield "a"
        ctrl_c()
        yield "never seen"

    with Interrupt() as interrupt:
        assert list(interrupt.among(items())) == ["a"]
    assert interrupt.asked


def test_what_was_taken_is_finished() -> None:
    finished: list[str] = []
    with Interrupt() as interrupt:
        for item in interrupt.among(["a", "b"]):
            ctrl_c()
            finished.append(item)
        finished.append("everything else")
    assert finished == ["a", "everything else"]
    assert interrupt.asked


def test_after_the_last_item_it_is_still_known() -> None:
    with Interrupt() as interrupt:
        assert list(interrupt.among(["a"])) == ["a"]
        assert not interrupt.asked
        ctrl_c()
    assert interrupt.asked


def test_the_second_ends_everything() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupt():
        ctrl_c()
        ctrl_c()


def test_the_handler_from_before_is_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), Interrupt():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_a_thread_that_hears_of_no_signal_goes_through_all() -> None:
    seen: list[str] = []

    def work() -> None:
        with Interrupt() as interrupt:
            seen.extend(interrupt.among(["a", "b"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["a", "b"]
