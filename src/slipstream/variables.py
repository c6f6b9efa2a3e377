"""Settings that are read from the environment: a struct whose fields say their variable, meaning and limits."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

DATA = "slipstream-data"
"""The usual data directory."""


def variable(name: str, text: str, *, secret: bool = False, **limits: Any) -> msgspec.Meta:
    """The annotation of a field. What is secret is not repeated by errors."""
    return msgspec.Meta(description=text, extra={"variable": name, "secret": secret}, **limits)


class SettingInfo(msgspec.Struct, frozen=True):
    """A setting as the documentation shows it."""

    name: str
    variable: str
    default: Any
    text: str
    secret: bool


def describe(kind: type[msgspec.Struct]) -> Iterator[SettingInfo]:
    return iter(_infos(kind))


@functools.cache
def _infos(kind: type[msgspec.Struct]) -> tuple[SettingInfo, ...]:
    """Return the settings of a kind. Type hints take a millisecond to resolve, and each bus needs these settings."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = kind()
    metas = {name: get_args(hints[name])[1] for name in kind.__struct_fields__}
    return tuple(
        SettingInfo(name, meta.extra["variable"], getattr(defaults, name), meta.description, meta.extra["secret"])
        for name, meta in metas.items()
    )


def load(
    kind: type[T],
    given: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    whose: str,
    refuse: Callable[[str], Exception],
    reasons: Mapping[str, str] | None = None,
) -> T:
    """What is given by name, over what the environment says, over the defaults. An empty variable says nothing. Raises
    what `refuse` makes of the reason; `reasons` has better words for some settings.

    Files that are by default below `slipstream-data` are below `SLIPSTREAM_DATA` if that names another directory."""
    environment = os.environ if environment is None else environment
    infos = {info.name: info for info in describe(kind)}
    values: dict[str, Any] = {}

    def check(info: SettingInfo, value: object, what: str) -> object:
        """Each on its own, so that the message can say what was wrong, and where it came from."""
        try:
            return getattr(msgspec.convert({info.name: value}, kind, strict=False), info.name)
        except msgspec.ValidationError as error:
            reason = (reasons or {}).get(info.name) or _reason(error, value)
            raise refuse(f"{info.variable if info.secret else what}: {reason}") from error

    data = environment.get("SLIPSTREAM_DATA", "").strip().rstrip("/")
    for info in infos.values():
        if text := environment.get(info.variable, "").strip():
            values[info.name] = check(info, _word(info, text), f"{info.variable}={text!r:.80}")
        elif data and not data.startswith(":memory:") and str(info.default).startswith(f"{DATA}/"):
            values[info.name] = data + info.default.removeprefix(DATA)
    for name, value in given.items():
        if name not in infos:
            raise refuse(f"{whose} has no setting {name!r}; there are {', '.join(infos)}")
        values[name] = check(infos[name], value, f"{name}={value!r:.80}")
    return kind(**values)


def _word(info: SettingInfo, text: str) -> object:
    """`1`, `yes` and `on` are usual in environments, too."""
    if not isinstance(info.default, bool):
        return text
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return words.get(text.lower(), text)


def _reason(error: msgspec.ValidationError, value: object) -> str:
    reason = str(error).partition(" - at ")[0]
    if not isinstance(value, str) or "Expected `" not in reason:
        return reason
    wanted, _, bound = reason.removeprefix("Expected `").partition("`")
    if wanted in {"int", "float"}:
        return f"a number{bound if bound.startswith((' >', ' <')) else ''} is wanted"
    return "true or false is wanted" if wanted == "bool" else reason
