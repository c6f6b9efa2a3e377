"""One box for every id."""

from __future__ import annotations

import asyncio

import pytest
from starlette.routing import BaseRoute

from slipstream.api.keys import KeyPlace
from slipstream.api.overview import SearchHit
from slipstream.console import Sources, create_console
from slipstream.console.answers import Refused
from slipstream.console.search import in_topics
from slipstream.console.sources import Noun
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, group, listening, topic

TOPICS = [
    topic("orders", group("billing"), group("shipping")),
    topic("orders.archive"),
    topic("dlq.orders"),
]


def found(text: str) -> list[tuple[str, str, str]]:
    return [(hit.kind, hit.text, hit.link) for hit in in_topics(text, TOPICS)]


def test_a_message_is_found_by_its_place() -> None:
    assert found("orders/0/17") == [("message", "orders/0/17", "#/topics/orders?partition=0&offset=17")]
    assert found("nothing/0/17") == []
    assert found("orders/zero/17") == []


def test_topics_and_groups_are_found_by_a_part_of_their_name() -> None:
    assert found("orders.a") == [("topic", "orders.archive", "#/topics/orders.archive")]
    assert found("bill") == [("group", "orders/billing", "#/groups/orders/billing")]
    assert found("orders/ship") == [("group", "orders/shipping", "#/groups/orders/shipping")]
    assert [hit[0] for hit in found("orders")] == ["topic", "group", "group", "topic", "topic"]


class Fixed(Noun):
    what = "fixed"
    link = "#/"

    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self._names = names
        self._error = error

    def routes(self) -> list[BaseRoute]:
        return []

    async def search(self, text: str) -> list[SearchHit]:
        if self._error is not None:
            raise self._error
        await asyncio.sleep(0)
        return [SearchHit(kind="slip", text=name, link=f"#/slips/{name}") for name in self._names]


@in_loop
async def test_what_is_exactly_it_comes_first_whoever_has_found_it() -> None:
    nouns = [Fixed("my-c-1", "c-1-copy"), Fixed(error=Refused("UNAVAILABLE", "away")), Fixed("c-1")]
    async with listening(create_console(Sources(Numbers(), more=nouns))) as url:
        _, answer, _ = await ask(f"{url}/v2/search?q=%20c-1%20")
        assert [hit["text"] for hit in answer["hits"]] == ["c-1", "c-1-copy", "my-c-1"]


@in_loop
async def test_one_that_fails_keeps_the_others_from_nothing(caplog: pytest.LogCaptureFixture) -> None:
    nouns = [Fixed(error=KeyError("a mistake of ours")), Fixed("c-1")]
    async with listening(create_console(Sources(Numbers(), more=nouns))) as url:
        _, answer, _ = await ask(f"{url}/v2/search?q=c-1")
        assert [hit["text"] for hit in answer["hits"]] == ["c-1"]
    assert "fixed could not be searched" in caplog.text
    assert "a mistake of ours" in caplog.text


@in_loop
async def test_nothing_is_not_looked_for() -> None:
    async with listening(create_console(Sources(Numbers()))) as url:
        for query in ("", "?q=", "?q=%20", "?q=" + "x" * 500):
            status, answer, _ = await ask(f"{url}/v2/search{query}")
            assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")


@in_loop
async def test_a_message_is_found_by_its_idempotency_key() -> None:
    numbers = Numbers()
    numbers.keys["pay-17"] = [
        KeyPlace(topic="orders", partition=2, offset=9, tenant_id="acme"),
        KeyPlace(topic="orders", partition=0, offset=-1, status="pending"),
    ]
    async with listening(create_console(Sources(numbers))) as url:
        _, answer, _ = await ask(f"{url}/v2/search?q=pay-17")
        assert answer["hits"] == [
            {"kind": "message", "text": "orders/2/9", "link": "#/topics/orders?partition=2&offset=9"}
        ]
