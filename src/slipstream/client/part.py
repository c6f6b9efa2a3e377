"""What the parts of a client stand on."""

from __future__ import annotations

from urllib.parse import quote

from slipstream.client.transport import Transport


class Part:
    """`AsyncClient` is made of parts, one for each noun; each only needs the way to the server and a name."""

    _transport: Transport
    owner: str
    """Whom leases are given to. Only the owner may ack, nack or extend, so no two workers should share one."""


def topic_path(topic: str, *rest: str) -> str:
    """`/v2/topics/{topic}/…`, whatever characters somebody put into a name."""
    return "/".join(("/v2/topics", *(quote(part, safe="") for part in (topic, *rest))))
