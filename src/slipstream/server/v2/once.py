"""Consumer idempotency over HTTP (ruling 8)."""

from __future__ import annotations

from slipstream.api import OnceBeginRequest, OnceBeginResponse, OnceSettleRequest
from slipstream.server.v2.endpoint import Call, Endpoint


async def begin(call: Call) -> OnceBeginResponse:
    request: OnceBeginRequest = call.body
    proceed = await call.engine.perform(
        lambda broker, now_ms: broker.begin_once(
            now_ms, request.topic, request.group, request.key, request.owner, request.lease_ms, request.tenant_id
        )
    )
    return OnceBeginResponse(proceed)


async def commit(call: Call) -> None:
    await _settle(call, None)


async def fail(call: Call) -> None:
    request: OnceSettleRequest = call.body
    await _settle(call, request.error or "failed")


async def _settle(call: Call, error: str | None) -> None:
    request: OnceSettleRequest = call.body
    await call.engine.perform(
        lambda broker, now_ms: broker.settle_once(
            now_ms, request.topic, request.group, request.key, request.owner, error, request.tenant_id
        )
    )


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v2/once/begin",
        summary="Begin an effect that must happen once",
        body=OnceBeginRequest,
        answer=OnceBeginResponse,
        handler=begin,
    ),
    Endpoint(
        method="POST",
        path="/v2/once/commit",
        summary="The effect is done",
        body=OnceSettleRequest,
        status=204,
        handler=commit,
    ),
    Endpoint(
        method="POST",
        path="/v2/once/fail",
        summary="The effect failed and may begin again",
        body=OnceSettleRequest,
        status=204,
        handler=fail,
    ),
]
