"""Long texts cut in their middle."""

from __future__ import annotations

_CUT = "\n[…]\n"


def excerpt(text: str, chars_max: int) -> str:
    """Keep the beginning and the end of a text that is too long.

    Three quarters are left for the end, because a traceback ends with the error itself.
    """
    if len(text) <= chars_max:
        return text
    head = chars_max // 4
    tail = chars_max - head - len(_CUT)
    return text[:head] + _CUT + text[-tail:] if tail > 0 else text[:chars_max]
