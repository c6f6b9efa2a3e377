"""Requests to JetStream's API while nothing answers them, as during an election.

The server is real. What answers for JetStream is the test, because an election cannot be made to lose one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from slipstream.bus.drivers.nats import context
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.context import Context, NoAnswer
from slipstream.bus.drivers.nats.errors import translate
from slipstream.bus.errors import BusUnavailable
from slipstream.bus.opening import open_bus
from slipstream.bus.settings import BusSettings
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop

AWAY = {"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}

_numbers = itertools.count()


@contextlib.asynccontextmanager
async def asked(
    nats: NatsSite, patience_s: float, answer: Callable[[int], dict[str, Any] | None]
) -> AsyncIterator[tuple[Context, str]]:
    """Yields a context and a subject whose requests are answered by `answer`, which is told how many came before."""
    connection = Connection(BusSettings(driver="nats", nats_url=nats.url))
    await connection.open()
    subject = f"api-{next(_numbers)}.INFO"
    numbers = itertools.count()

    async def respond(msg: Msg) -> None:
        answered = answer(next(numbers))
        if answered is not None:
            await msg.respond(json.dumps(answered).encode())

    await connection.nats.subscribe(subject.rpartition(".")[0] + ".>", cb=respond)
    try:
        yield Context(connection, patience_s), subject
    finally:
        await connection.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "ASK_AGAIN_S", 0.02)
    monkeypatch.setattr(context, "REFUSED_PAUSE_S", 0.01)


@in_loop
async def test_a_request_is_sent_again_until_it_is_answered(nats: NatsSite) -> None:
    async with asked(nats, 30, lambda before: {"ok": before} if before == 2 else None) as (js, subject):
        assert await js._api_request(subject, timeout=0.01) == {"ok": 2}, "the first two were lost"


@in_loop
async def test_a_cluster_that_says_it_is_away_for_now_is_asked_again(nats: NatsSite) -> None:
    async with asked(nats, 30, lambda before: {"ok": True} if before == 2 else AWAY) as (js, subject):
        assert await js._api_request(subject) == {"ok": True}
    async with asked(nats, 0.1, lambda before: AWAY) as (js, subject):
        with pytest.raises(ServiceUnavailableError) as raised:
            await js._api_request(subject, timeout=0.1)
    assert "temporarily unavailable" in str(translate(raised.value, "the stream of orders"))


@in_loop
async def test_an_account_without_jetstream_is_asked_once(nats: NatsSite) -> None:
    counts: list[int] = []

    def answer(before: int) -> dict[str, Any]:
        counts.append(before)
        return {"error": {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}}

    async with asked(nats, 30, answer) as (js, subject):
        with pytest.raises(ServiceUnavailableError):
            await js._api_request(subject)
    assert counts == [0]


@pytest.mark.parametrize(
    ("err_code", "text"),
    [(10008, "temporarily unavailable"), (10039, "start it with -js"), (None, "start it with -js")],
)
@in_loop
async def test_only_a_server_without_jetstream_is_said_to_have_none(
    nats: NatsSite, err_code: int | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(self: Context) -> None:
        raise ServiceUnavailableError(code=503, err_code=err_code, description="JetStream temporarily unavailable")

    monkeypatch.setattr(Context, "account_info", unavailable)
    with pytest.raises(BusUnavailable, match=text):
        await open_bus(driver="nats", nats_url=nats.url)


@in_loop
async def test_no_answer_in_the_time_there_is_says_so(nats: NatsSite) -> None:
    async with asked(nats, 0.1, lambda before: None) as (js, subject):
        with pytest.raises(NoAnswer) as raised:
            await js._api_request(subject, timeout=0.1)
    translated = translate(raised.value, "the stream of orders")
    assert isinstance(translated, BusUnavailable)
    assert "JetStream has not answered for 0.1 s; does its cluster have a leader?" in str(translated)


@in_loop
async def test_what_is_deleted_is_deleted_once(nats: NatsSite) -> None:
    counts: list[int] = []
    async with asked(nats, 0.1, counts.append) as (js, subject):
        with pytest.raises(NoAnswer):
            await js._api_request(subject.replace("INFO", "DELETE.it"), timeout=0.1)
        await asyncio.sleep(0)
    assert counts == [0], "a second request would find nothing, and fail"
