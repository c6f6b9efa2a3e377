from __future__ import annotations

import contextvars

from slipstream.handling import HANDLED, NOTED, handling, note, noting


def in_a_context_of_its_own(test: object) -> None:
    contextvars.Context().run(test)  # type: ignore[arg-type]


def test_nothing_is_known_where_nothing_is_handled() -> None:
    in_a_context_of_its_own(lambda: _same(handling(), {}))


def test_what_is_noted_goes_before_what_attributes_say_and_the_last_word_counts() -> None:
    def look() -> None:
        HANDLED.set({"correlationId": "c-1", "stepId": "", "traceparent": "00-1"})
        NOTED.set({"attempt": 3})
        _same(handling(), {"correlationId": "c-1", "attempt": 3})
        note(stepId="ship", attempt=0)
        _same(handling(), {"correlationId": "c-1", "attempt": 0, "stepId": "ship"})
        note(correlationId="c-2")
        _same(handling(), {"correlationId": "c-2", "attempt": 0, "stepId": "ship"})

    in_a_context_of_its_own(look)


def test_what_is_noted_for_a_while_is_forgotten_then() -> None:
    def look() -> None:
        with noting(correlationId="c-9"):
            _same(handling(), {"correlationId": "c-9"})
        _same(handling(), {})

    in_a_context_of_its_own(look)


def _same(one: object, other: object) -> None:
    assert one == other
