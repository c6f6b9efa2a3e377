"""What keeps a broker from doing all it should, while it goes on with the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an operator should mend; the broker is ready nevertheless."""

    kind: Literal["router", "disk"]
    level: Literal["error", "warning"]
    text: str
    detail: str
    """The reason, and what to do."""


ConditionSource: TypeAlias = Callable[[], Condition | None]
