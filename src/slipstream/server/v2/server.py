"""`GET /v2/server`: which server this is, and how it is."""

from __future__ import annotations

import msgspec

from slipstream import __version__
from slipstream.api.server import ServerCondition, ServerInfo
from slipstream.engine import Engine
from slipstream.server.v2.endpoint import Call, Endpoint


async def show_server(call: Call) -> ServerInfo:
    engine = call.engine
    return ServerInfo(
        version=__version__,
        durability=str(engine.store.config.durability),
        bus="slipstream",
        started_ms=call.request.app.state.started_ms,
        now_ms=engine.now_ms(),
        writable=engine.trouble is None,
        conditions=server_conditions(engine),
    )


def server_conditions(engine: Engine) -> list[ServerCondition]:
    return [msgspec.convert(condition, ServerCondition, from_attributes=True) for condition in engine.conditions]


ENDPOINTS = [
    Endpoint(method="GET", path="/v2/server", summary="Which server this is", answer=ServerInfo, handler=show_server)
]
