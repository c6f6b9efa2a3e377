"""Places at hosts, for bundles that run at the same time."""

from __future__ import annotations

import random

from slipstream.jobs.download.limits import Share
from slipstream.pipeline.downloads.places import Places


def test_a_host_without_limits_is_open_to_every_bundle() -> None:
    places = Places(slots=2)
    assert [places.take("h") for _ in range(9)] == [Share()] * 9


def test_the_places_of_a_host_are_shared_out_among_as_many_bundles_as_may_run() -> None:
    places = Places(slots=3, concurrency=32)
    shares = [places.take("h") for _ in range(3)]
    assert [share.concurrency for share in shares if share] == [11, 11, 10]
    assert places.take("h") is None
    assert places.take("another") is not None, "each host has its own"


def test_a_host_with_fewer_places_than_bundles_is_in_fewer_of_them() -> None:
    places = Places(slots=8, concurrency=2)
    assert [places.take("h"), places.take("h"), places.take("h")] == [Share(1), Share(1), None]


def test_a_place_that_was_given_back_is_anothers() -> None:
    places = Places(slots=2, concurrency=1)
    share = places.take("h")
    assert share is not None
    assert places.take("h") is None
    places.give_back("h", share)
    assert places.take("h") == Share(1)


def test_a_host_with_a_rate_is_in_one_bundle_which_has_all_of_it() -> None:
    places = Places(slots=4, concurrency=32, rate_per_s=5)
    assert places.take("h") == Share(32, 5)
    assert places.take("h") is None


def test_never_more_than_there_are_whoever_comes_and_goes() -> None:
    chance = random.Random(17)
    for concurrency in range(1, 12):
        places = Places(slots=5, concurrency=concurrency)
        out: list[Share] = []
        for _ in range(500):
            if chance.random() < 0.5 and (share := places.take("h")) is not None:
                out.append(share)
            elif out:
                places.give_back("h", out.pop(chance.randrange(len(out))))
            assert sum(share.concurrency for share in out) <= concurrency
            assert all(share.concurrency for share in out), "a share of none would be no limit"


def test_what_a_host_has_asked_for_is_known_until_it_has_passed() -> None:
    places = Places(slots=2, concurrency=4)
    places.hold("h", 100.0)
    places.hold("h", 90.0)
    places.rest("r", 50.0)
    assert (places.ready_at("h"), places.ready_at("r"), places.ready_at("x")) == (100.0, 50.0, 0.0)
    assert places.held_s({"h", "r", "x"}, now=70.0) == {"h": 30.0}, "a rate is nothing that a host has asked for"
    assert places.asked_s("h", now=101.0) == 0.0
    places.forget(now=100.0)
    assert places.ready_at("h") == 0.0
