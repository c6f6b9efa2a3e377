"""What every scene of the demonstration has: somebody who watches, and an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[int, int], None]
"""How many are done, of how many."""


class SceneFailed(RuntimeError):
    """Something did not answer, or not what it should; says what, and what to do."""
