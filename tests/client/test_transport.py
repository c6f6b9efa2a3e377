"""What comes back when something other than an answer does."""

from __future__ import annotations

import asyncio
import email.utils
import time

import pytest
from aiohttp import web

from slipstream.client import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    InvalidArgument,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    SlipstreamError,
    TooLarge,
    Unavailable,
    transport,
)
from slipstream.client.async_client import DEFAULT_URL
from slipstream.client.transport import _retry_after_ms
from tests.client.between import Between, answer, between, hold
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://127.0.0.1", "localhost"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidArgument, match="http://"):
        AsyncClient(url)


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:99999", "http://host:eighty", "http://host?a=b", "http://host/#top"]
)
def test_an_address_that_nobody_can_have_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is no address"):
        AsyncClient(url)


@pytest.mark.parametrize("url", ["http://", "http://a..b", f"http://{'a' * 64}.example"])
@in_loop
async def test_an_address_that_turns_out_to_be_none_is_refused_when_it_is_used(url: str) -> None:
    async with AsyncClient(url, retry_for_ms=0) as client:
        with pytest.raises(InvalidArgument, match="is no address"):
            await client.topics()


def test_a_password_in_the_address_is_in_no_error() -> None:
    for url in ("http://me:secret@127.0.0.1:1/", "http://me:secret@host:99999", "me:secret@host"):
        with pytest.raises(SlipstreamError) as refused, Client(url, retry_for_ms=0) as client:
            client.topics()
        assert "secret" not in str(refused.value)


def test_the_address_is_given_or_in_the_environment_or_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    assert AsyncClient().url == DEFAULT_URL
    monkeypatch.setenv("SLIPSTREAM_URL", "http://elsewhere:1")
    assert AsyncClient().url == "http://elsewhere:1"
    assert AsyncClient("http://here:2").url == "http://here:2"


@in_loop
async def test_a_slash_at_the_end_of_the_address_does_no_harm(shared: ServerProcess) -> None:
    async with AsyncClient(shared.base + "/") as client:
        await client.topics()


@in_loop
async def test_an_answer_that_does_not_come_in_time_is_given_up(shared: ServerProcess) -> None:
    async with (
        between(shared.base, hold) as middle,
        AsyncClient(middle.url, timeout_ms=1_000, retry_for_ms=0) as client,
    ):
        with pytest.raises(ConnectionFailed, match="in time") as caught:
            await client.topics()
    assert caught.value.sent


@in_loop
async def test_the_time_a_fetch_was_told_to_wait_does_not_count(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base, timeout_ms=100) as client:
        assert await client.fetch(topic, "g", wait_ms=300) == []


@in_loop
async def test_those_who_wait_for_messages_do_not_hold_up_those_who_finish_them(
    shared: ServerProcess, topic: str
) -> None:
    async with AsyncClient(shared.base, max_connections=1) as client, asyncio.TaskGroup() as group:
        fetches = [group.create_task(client.fetch(topic, "g", wait_ms=30_000, max_messages=1)) for _ in range(5)]
        await client.produce_batch(topic, ["1", "2", "3", "4", "5"])
        for fetch in asyncio.as_completed(fetches):
            await client.ack(*await fetch)


@in_loop
async def test_a_page_of_a_proxy_is_an_error_that_says_where_it_came_from(shared: ServerProcess) -> None:
    page = answer(502, b"<html>Bad Gateway</html>", Content_Type="text/html")
    async with between(shared.base, page) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        with pytest.raises(Unavailable, match="/v2/topics was answered with 502"):
            await client.topics()


@in_loop
async def test_a_redirect_is_not_followed(shared: ServerProcess) -> None:
    async with between(shared.base, answer(302, Location="/v1/healthz")) as middle, AsyncClient(middle.url) as client:
        with pytest.raises(InvalidArgument, match="302"):
            await client.topics()


@in_loop
async def test_an_answer_that_is_none_of_ours_is_said_to_be_so(shared: ServerProcess) -> None:
    async with (
        between(shared.base, answer(200, b"<html>", Content_Type="text/html")) as middle,
        AsyncClient(middle.url) as client,
    ):
        with pytest.raises(SlipstreamError, match="if it is not a Slipstream broker that answers, set SLIPSTREAM_URL"):
            await client.topics()


@in_loop
async def test_a_client_that_was_closed_says_so(shared: ServerProcess) -> None:
    client = AsyncClient(shared.base)
    await client.topics()
    await client.close()
    await client.close()
    with pytest.raises(SlipstreamError, match="closed"):
        await client.topics()


def test_a_client_says_that_it_belongs_to_another_loop(shared: ServerProcess) -> None:
    client = AsyncClient(shared.base)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.topics())

    async def elsewhere() -> None:
        with pytest.raises(SlipstreamError, match="another event loop"):
            await client.topics()

    asyncio.run(elsewhere())
    loop.run_until_complete(client.close())
    loop.close()


def test_retry_after_is_seconds_or_a_date() -> None:
    assert _retry_after_ms("3") == 3_000
    assert 50_000 < _retry_after_ms(email.utils.formatdate(time.time() + 60, usegmt=True)) <= 60_000
    assert _retry_after_ms(email.utils.formatdate(time.time() - 60, usegmt=True)) == 0
    assert _retry_after_ms("") == _retry_after_ms("soon") == 0


@pytest.mark.parametrize(
    "header", ["9" * 5_000, "-5", "Mon, 01 Jan 0001 00:00:00 -0000", "Fri, 31 Dec 9999 23:59:59 -2359"]
)
def test_no_retry_after_is_too_strange(header: str) -> None:
    """Whatever is raised here is raised in the loops of workers, which would end."""
    assert _retry_after_ms(header) >= 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/msgpack", b"\x82\xa5error\xa1\xff\xa7message\xa1m"),
        ("application/json", b'{"error": "\xff", "message": "m"}'),
        ("application/json", b'{"more": ' + b"[" * 100_000),
    ],
)
@in_loop
async def test_a_refusal_that_cannot_be_read_is_still_one(shared: ServerProcess, kind: str, body: bytes) -> None:
    """Whatever else is raised here is raised in the loops of workers, which would end."""
    refusing = answer(503, body, Content_Type=kind)
    async with between(shared.base, refusing) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        with pytest.raises(Unavailable, match="and no reason"):
            await client.topics()


@in_loop
async def test_another_program_at_the_address_is_said_to_be_no_broker(shared: ServerProcess) -> None:
    page = answer(404, b"<h1>not found</h1>", Content_Type="text/html")
    async with between(shared.base, page) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        with pytest.raises(NotFound) as refused:
            await client.topics()
    assert str(refused.value) == (
        f"something that is not a Slipstream broker answers at {middle.url}: /v2/topics was answered with 404 and no "
        "reason; set SLIPSTREAM_URL, or --server, to the address of the broker"
    )


@pytest.mark.parametrize("body", [b"\x81\xa1\xff\xc0", b"\x81\xa1x" + b"\x91" * 100_000])
@in_loop
async def test_an_answer_that_cannot_be_read_is_said_to_make_no_sense(shared: ServerProcess, body: bytes) -> None:
    strange = answer(200, body, Content_Type="application/msgpack")
    async with between(shared.base, strange) as middle, AsyncClient(middle.url) as client:
        with pytest.raises(SlipstreamError, match="makes no sense"):
            await client.topics()


@in_loop
async def test_what_a_server_cannot_do_is_not_asked_for_again(shared: ServerProcess) -> None:
    body = b'{"error": "UNIMPLEMENTED", "message": "not on NATS"}'
    async with between(shared.base) as middle, AsyncClient(middle.url) as client:
        middle.always["/v2/topics"] = answer(501, body, Content_Type="application/json")
        with pytest.raises(SlipstreamError, match="not on NATS") as caught:
            await client.topics()
        assert (caught.value.status, middle.seen) == (501, ["/v2/topics"])


@in_loop
async def test_to_wait_less_than_nothing_is_no_reason_to_ask_for_ever(shared: ServerProcess) -> None:
    body = b'{"error": "U", "message": "come back yesterday", "retry_after_ms": -1000000000}'
    async with between(shared.base) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        middle.always["/v2/topics"] = answer(503, body, Content_Type="application/json")
        with pytest.raises(Unavailable, match="yesterday") as caught:
            await client.topics()
        assert (caught.value.retry_after_ms, middle.seen) == (0, ["/v2/topics"])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidArgument),
        (404, NotFound),
        (405, InvalidArgument),
        (409, Conflict),
        (410, OffsetOutOfRange),
        (413, TooLarge),
        (415, InvalidArgument),
        (429, Overloaded),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
@in_loop
async def test_each_status_has_its_exception(shared: ServerProcess, status: int, kind: type[SlipstreamError]) -> None:
    body = b'{"error": "CODE", "message": "do this", "earliest_offset": 7}'
    refusing = answer(status, body, Content_Type="application/json; charset=utf-8")
    async with between(shared.base, refusing) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        with pytest.raises(SlipstreamError, match="do this") as caught:
            await client.topics()
    assert (type(caught.value), caught.value.status, caught.value.code) == (kind, status, "CODE")
    if isinstance(caught.value, OffsetOutOfRange):
        assert caught.value.earliest_offset == 7


@in_loop
async def test_an_answer_without_end_is_not_taken_into_memory(
    shared: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1 << 20)

    async def endless(between: Between, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    async with between(shared.base, endless) as middle, AsyncClient(middle.url, retry_for_ms=0) as client:
        with pytest.raises(SlipstreamError, match="larger than"):
            await client.topics()
        assert await client.topics() is not None, "and the next one is answered as ever"


@in_loop
async def test_a_table_that_is_none_is_said_to_be_none(shared: ServerProcess, topic: str) -> None:
    page = answer(200, b"<html>", Content_Type="text/html")
    async with between(shared.base, page) as middle, AsyncClient(middle.url) as client:
        with pytest.raises(SlipstreamError, match="makes no sense"):
            await client.read_arrow(topic)


@pytest.mark.parametrize("data", [b"{}", b'{"x": ' + b"[" * 100_000])
@in_loop
async def test_events_that_are_none_are_said_to_be_none(shared: ServerProcess, data: bytes) -> None:
    page = answer(200, b"event: stats\ndata: " + data + b"\n\n", Content_Type="text/event-stream")
    async with between(shared.base, page) as middle, AsyncClient(middle.url) as client:
        with pytest.raises(SlipstreamError, match="makes no sense"):
            async for _ in client.events():
                pass
