"""Exceptions travel: between threads, and between processes."""

from __future__ import annotations

import pickle

import pytest

from slipstream.api import Failure
from slipstream.client import LeaseLost, Overloaded, SlipstreamError, errors


@pytest.mark.parametrize("kind", SlipstreamError.__subclasses__())
def test_an_exception_can_be_pickled(kind: type[SlipstreamError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what happened")))
    assert (type(again), str(again)) == (kind, "what happened")


def test_and_keeps_what_it_knows() -> None:
    lost = LeaseLost("gone", failures=[Failure(0, 1, "FAILED_PRECONDITION", "not owner")])
    assert pickle.loads(pickle.dumps(lost)).failures == lost.failures
    assert pickle.loads(pickle.dumps(Overloaded("full", retry_after_ms=5))).retry_after_ms == 5


def test_every_exception_has_its_explanation() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SlipstreamError)]
    assert len(kinds) > 10
    assert all(kind.__doc__ for kind in kinds)
