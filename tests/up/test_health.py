"""Whether a part is ready: asked until it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from aiohttp import web

from slipstream.up.health import Condition, answers, conditions, until_ready
from slipstream.up.ports import free_port
from tests.client.loop import in_loop


@asynccontextmanager
async def answering(*replies: web.Response) -> AsyncIterator[str]:
    """One after the other, the last for ever."""
    left = list(replies)

    async def answer(request: web.Request) -> web.Response:
        reply = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=reply.status, text=reply.text)

    app = web.Application()
    app.router.add_get("/health/ready", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/health/ready"
    finally:
        await runner.cleanup()


@in_loop
async def test_it_is_ready_when_it_answers_200_and_says_why_not_before() -> None:
    told: list[str] = []
    replies = [
        web.Response(status=503, text='{"status": "starting", "reason": "Spark is being started"}'),
        web.Response(status=503, text='{"status": "starting", "reason": "Spark is being started"}'),
        web.Response(status=500, text="no JSON"),
        web.Response(status=503, text='["no object"]'),
        web.Response(status=200, text='{"status": "ready"}'),
    ]
    async with answering(*replies) as url:
        await until_ready(url, told.append)
        assert await answers(url)
    assert told == ["Spark is being started", ""], "each once, until it changes"


@in_loop
async def test_one_that_nobody_answers_for_is_asked_until_somebody_does() -> None:
    url = f"http://127.0.0.1:{free_port()}/health/ready"
    assert not await answers(url)
    asking = asyncio.create_task(until_ready(url, lambda _: None))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    asking.cancel()


@in_loop
async def test_who_was_ready_is_asked_on_and_is_alive_as_long_as_it_answers() -> None:
    replies = [
        web.Response(status=200, text="{}"),
        web.Response(status=200, text="{}"),
        web.Response(status=503, text='{"status": "waiting", "reason": "the disk is full"}'),
    ]
    async with answering(*replies) as url:
        async with aclosing(conditions(url, "", 0.001)) as found:
            assert await anext(found) == Condition(is_ready=True, is_alive=True)
            assert await anext(found) == Condition(is_ready=False, is_alive=True, reason="the disk is full")
        async with aclosing(conditions(url, url, 0.001)) as found:
            assert await anext(found) == Condition(is_ready=False, is_alive=False, reason="the disk is full")
    async with aclosing(conditions(url, "", 0.001)) as found:
        assert await anext(found) == Condition(is_ready=False, is_alive=False), "nobody is there any more"
