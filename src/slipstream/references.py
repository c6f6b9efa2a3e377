"""What a setting or a command names as `module:name`: found, and imported."""

from __future__ import annotations

import importlib
import sys


class NotFound(ValueError):
    """The reference is none, or what it names cannot be imported. The reason says why."""


def find(reference: str) -> object:
    """Raises NotFound.

    Example:
        find("shop.orders:worker")
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise NotFound(f"{reference!r} is no module:name, such as shop:worker")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a file beside you, which an installed command would not find
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise NotFound(f"{reference} cannot be imported: {type(error).__name__}: {error}") from error
    return found
