"""Who decides what a message is and where it goes, before it is stored: a Python function, an HTTP endpoint, or rules.

The broker knows only the decision; calling whoever makes it, with a time limit, happens here.
"""

from pathlib import Path

from slipstream.router.callable import CallableRouter
from slipstream.router.hook import RoutedMessage, Router, RouterHook, RouterRefused
from slipstream.router.rules import RulesRouter

__all__ = ["CallableRouter", "RoutedMessage", "Router", "RouterHook", "RouterRefused", "RulesRouter", "load_router"]


def load_router(reference: str, timeout_ms: int) -> RouterHook:
    """`http://…` or `https://…`, a path to a `.toml` rules file, or `module:name`. Raises RouterRefused."""
    router: Router
    if reference.startswith(("http://", "https://")):
        from slipstream.router.http import HttpRouter  # noqa: PLC0415 - aiohttp costs start-up time only where it is used

        router = HttpRouter(reference, timeout_ms)
    elif reference.endswith(".toml"):
        router = RulesRouter.load(Path(reference))
    else:
        router = CallableRouter.load(reference)
    return RouterHook(router, timeout_ms)
