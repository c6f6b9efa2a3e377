"""Functions that others hand to us to be called with a message: by a worker of the client, or by the bus."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path

from slipstream.excerpt import excerpt

TRACEBACK_CHARS_MAX = 8_000
_PACKAGE = str(Path(__file__).parent)


def why_not(handler: object) -> str:
    """Why it could never do its work, and would not say so; "" if it can."""
    if not callable(handler):
        return f"a handler is a function that takes a message, not {handler!r}"
    function = inspect.unwrap(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"{handler!r} has a yield in it, so calling it does nothing: return instead"
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        return f"{handler!r} is called with the message and nothing else: {error}"
    except ValueError:
        pass  # what is written in C may have no signature
    return ""


def is_async(handler: Callable[..., object]) -> bool:
    """A coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def reason(error: BaseException) -> str:
    """What it raised, in one line."""
    text = said(error)
    return type(error).__name__ + (f": {text}" if text is not None else "")


def said(error: BaseException) -> str | None:
    """The words of an exception; None where it has none to say."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is not ours, and the message has failed either way
        return None


def traceback_of(error: BaseException) -> str:
    """Format the traceback from the handler on, without the frames that called it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except Exception:  # noqa: BLE001 - an exception that cannot be formatted is not ours, and the message has failed
        return ""
    # What UTF-8 cannot say would make the request that reports it fail.
    return excerpt(text, TRACEBACK_CHARS_MAX).encode(errors="replace").decode()
