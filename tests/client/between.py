"""Somebody between a client and its server who does not always pass things on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import aiohttp
import msgspec
from aiohttp import web

Act: TypeAlias = "Callable[[Between, web.Request], Awaitable[web.StreamResponse]]"


class Between:
    """A real server on a real port. For each request it does the next of its acts, and passes on the rest."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.acts: list[Act] = []
        self.always: dict[str, Act] = {}
        """What is done on a path whenever there is no other act."""
        self.seen: list[str] = []
        """Paths, in the order in which they came."""
        self.bodies: list[object] = []
        self.held = asyncio.Semaphore(0)
        """Released once for each request that is held."""
        self.release = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(request.path)
        self.bodies.append(msgspec.msgpack.decode(body) if body else None)
        act = self.acts.pop(0) if self.acts else self.always.get(request.path, passing)
        return await act(self, request)

    async def forward(self, request: web.Request) -> web.Response:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method,
                self.server + request.path_qs,
                data=await request.read(),
                headers={name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers},
            ) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name.startswith("Slipstream-")}
            headers = {"Content-Type": answer.headers.get("Content-Type", ""), **kept}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)


async def passing(between: Between, request: web.Request) -> web.StreamResponse:
    return await between.forward(request)


async def cut(between: Between, request: web.Request) -> web.StreamResponse:
    """The request arrived, and got no further."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_after(between: Between, request: web.Request) -> web.StreamResponse:
    """The server did it, and the answer got lost."""
    await between.forward(request)
    return await cut(between, request)


async def hold(between: Between, request: web.Request) -> web.StreamResponse:
    """Until the test releases it."""
    between.held.release()
    await between.release.wait()
    return await between.forward(request)


def answer(status: int, body: bytes = b"", **headers: str) -> Act:
    async def act(between: Between, request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=status, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    return act


def overloaded(retry_after_ms: int) -> Act:
    body = {"error": "RESOURCE_EXHAUSTED", "message": "full; retry later", "retry_after_ms": retry_after_ms}
    return answer(429, msgspec.msgpack.encode(body), Content_Type="application/msgpack", Retry_After="1")


def unavailable() -> Act:
    body = {"error": "UNAVAILABLE", "message": "the journal cannot be written"}
    return answer(503, msgspec.msgpack.encode(body), Content_Type="application/msgpack")


@contextlib.asynccontextmanager
async def between(server: str, *acts: Act) -> AsyncIterator[Between]:
    middle = Between(server)
    middle.acts = list(acts)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", middle.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    middle.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield middle
    finally:
        middle.release.set()
        await runner.cleanup()
