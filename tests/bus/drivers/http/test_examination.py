"""What the doctor says about a server."""

from __future__ import annotations

from slipstream.bus import Finding, Message, Reject, examine, load_settings, open_bus
from slipstream.testing import MemoryBroker
from tests.bus.recorder import Recorder
from tests.bus.sites.http import HttpSite
from tests.client.loop import in_loop, until


async def findings(url: str, **given: object) -> list[Finding]:
    return [finding async for finding in examine(load_settings({"driver": "http", "url": url, **given}))]


@in_loop
async def test_a_new_server_is_in_order() -> None:
    with MemoryBroker() as broker:
        found = await findings(broker.url)
    assert [finding.what for finding in found] == ["address", "connection", "topics"]
    assert {finding.verdict for finding in found} == {"ok"}
    assert broker.url in found[0].text
    assert "version" in found[1].text


@in_loop
async def test_where_nothing_answers_that_is_the_one_problem() -> None:
    found = await findings("http://127.0.0.1:9", connect_timeout_ms=100)
    assert [(finding.verdict, finding.what) for finding in found] == [("ok", "address"), ("problem", "connection")]
    assert "slipstream serve" in found[1].text


@in_loop
async def test_dead_letters_and_groups_are_told_of_the_topics_with_the_prefix_only(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings(), prefix="doc.") as bus:

        async def refuse(message: Message) -> None:
            raise Reject("no")

        await bus.subscribe("orders", "refusing", refuse)
        await bus.publish("orders", "a")
        letters = Recorder()
        await bus.subscribe("orders.DLQ", "look", letters)
        await letters.until(lambda: b"a" in letters.data)

        async def is_finished() -> bool:
            return bool((await bus.native.group("doc.orders", "refusing")).lag == 0)

        await until(is_finished)
        await bus.publish("waiting", "b")
        await bus.native.seek("doc.waiting", "slow", to="earliest")  # which makes it
        await bus.native.pause("doc.waiting", "slow")
        found = await findings(shared_site.server.base, prefix="doc.")
    told = {(finding.verdict, finding.what): finding.text for finding in found}
    assert told["ok", "group refusing"] == "has all of doc.orders"
    assert "1 in doc.orders.DLQ; look at them with: slipstream read doc.orders.DLQ" in told["warning", "dead letters"]
    assert told["warning", "group slow"].startswith("is paused: 1 message of doc.waiting not finished")
    assert "3 that start with doc." in told["ok", "topics"]
    elsewhere = await findings(shared_site.server.base, prefix="doc.elsewhere.", ensure=False)
    assert [finding.verdict for finding in elsewhere] == ["ok", "ok", "warning"]


@in_loop
async def test_what_the_server_itself_gave_up_is_told_too() -> None:
    with MemoryBroker() as broker:
        async with broker.async_client() as client:
            await client.create_topic("orders")
            await client.produce("orders", "a")
            (message,) = await client.fetch("orders", "g")
            await message.nack(retryable=False)
        (warning,) = [finding for finding in await findings(broker.url) if finding.verdict == "warning"]
    assert "1 in dlq.orders: given up by the server" in warning.text


@in_loop
async def test_a_password_in_the_address_is_not_shown(shared_site: HttpSite) -> None:
    found = await findings(shared_site.server.base.replace("//", "//me:secret@"))
    assert not [finding for finding in found if "secret" in finding.text]
