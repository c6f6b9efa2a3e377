"""How failures are retried, as fields that may be left out."""

from __future__ import annotations

from typing import Annotated

import msgspec

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RetryPolicyFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """How failures are repeated. In an envelope an absent field is 0; elsewhere it is as it was, or as the topic has
    it."""

    max_attempts: Natural | None = None
    """0: without end."""
    backoff_ms: Natural | None = None
    """The first pause; it doubles. 0: none."""
    max_backoff_ms: Natural | None = None
