"""Steps that people have paused, or that asked for it themselves."""

from __future__ import annotations

from pathlib import Path

from slipstream.client.portal import LoopThread
from slipstream.pipeline.steps.pauses import StoredPauses, stored_pauses
from slipstream.slip.ledger import Held, Ledger
from slipstream.slip.store import StoreUnavailable, open_store
from tests.client.loop import in_loop
from tests.slip.lab import fast


def test_what_the_function_asks_for_is_known_here_and_to_others(tmp_path: Path) -> None:
    settings = fast(store=str(tmp_path / "slips.db"))
    with stored_pauses(settings) as mine, stored_pauses(settings) as others:
        assert mine.reason("embed") is None
        mine.hold("embed", "the model is away", 3600)
        assert mine.reason("embed") == "the model is away"
        assert others.reason("embed") == "the model is away"
        assert mine.reason("rank") is None


@in_loop
async def test_what_people_have_paused_is_paused(tmp_path: Path) -> None:
    settings = fast(store=str(tmp_path / "slips.db"))
    async with open_store(settings.store) as store:
        await Ledger(store, settings.ttl_ms).pause("embed", Held("maintenance", None))
    with stored_pauses(settings) as found:
        assert found.reason("embed") == "maintenance"


class _Away:
    """A store that cannot be reached: of a real one that happens at moments nobody chooses."""

    async def facts(self, *_: object) -> dict[str, bytes]:
        raise StoreUnavailable("no route to it")

    async def put(self, *_: object, **__: object) -> None:
        raise StoreUnavailable("no route to it")


def test_a_store_that_is_away_stops_nothing_and_forgets_nothing() -> None:
    portal = LoopThread()
    try:
        found = StoredPauses(portal, _Away(), fast(poll_ms=1))  # type: ignore[arg-type]
        assert found.reason("embed") is None
        found.hold("embed", "the model is away", 3600)
        assert found.reason("embed") == "the model is away"
    finally:
        portal.close()
