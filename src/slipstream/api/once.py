"""Consumer idempotency: an effect that a message causes is begun, and then committed or failed, by one worker."""

from __future__ import annotations

from typing import Annotated

import msgspec


class OnceBeginRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/once/begin`"""

    topic: str
    group: str
    key: str
    owner: str
    lease_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """After this another worker may begin; 0: what the server is set to."""
    tenant_id: str = ""


class OnceBeginResponse(msgspec.Struct, frozen=True):
    proceed: bool
    """false: it was done before; skip it."""


class OnceSettleRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/once/commit` and `POST /v2/once/fail`"""

    topic: str
    group: str
    key: str
    owner: str
    tenant_id: str = ""
    error: str = ""
    """With fail: why."""
