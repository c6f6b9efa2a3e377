"""The page of all settings that are read from the environment, from the structs that read them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import msgspec

from slipstream.variables import SettingInfo, describe

SOURCE = Path(__file__).parent.parent / "src" / "slipstream"

_INTRODUCTION = """\
# Settings of all parts but the broker

<!-- Written by scripts/generate_docs.py from the settings of each part: change them there. -->

Each part reads its settings from the environment; many commands take the most important ones as options besides, and
what is typed wins. A value that makes no sense is named with its variable, and nothing starts. An empty variable says
nothing. Switches are `true` or `false`; times end in `_MS` and are milliseconds, sizes in `_BYTES`.

Files whose default is below `slipstream-data` are below `SLIPSTREAM_DATA` instead if that is set: with
`SLIPSTREAM_DATA=/srv/data` the store of slips is `/srv/data/slips.db`.

The broker has [settings of its own](configuration.md), which are options, variables and keys of a file. The part that
uses the embedded broker takes those, too.
"""

_TITLES = {
    "bus": ("The bus", "bus.md"),
    "slip": ("Slips", "slips.md"),
    "jobs": ("Download jobs", "jobs.md"),
    "pipeline": ("The pipeline, and all work on Spark", "pipeline.md"),
    "console": ("The console", "console.md"),
    "up": ("The supervisor", "operations.md#all-parts-on-one-machine"),
    "health": ("Health of parts", "observability.md#health"),
}
"""Rooms in the order of the page, each with where it is explained. One that is not here comes last, by its name."""


def render_settings() -> str:
    lines = [_INTRODUCTION]
    for room in sorted(rooms(), key=_order):
        title, page = _TITLES.get(room, (room.capitalize(), ""))
        lines += [f"## {title}", ""]
        if page:
            lines += [f"What they are for: [{title.split(',')[0].lower()}]({page}).", ""]
        for kind in structs(room):
            lines += ["| variable | in Python | default | meaning |", "|---|---|---|---|"]
            lines += [_row(info) for info in describe(kind)]
            lines.append("")
    return "\n".join(lines)


def rooms() -> list[str]:
    return [path.parent.name for path in SOURCE.glob("*/settings.py")]


def structs(room: str) -> Iterator[type[msgspec.Struct]]:
    """What the settings of a room are read into; a part of another struct is shown with that."""
    module = import_module(f"slipstream.{room}.settings")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    for kind in kinds:
        is_part = any(kind in other.__mro__[1:] for other in kinds)
        if issubclass(kind, msgspec.Struct) and not is_part:
            yield kind


def _order(room: str) -> tuple[int, str]:
    known = list(_TITLES)
    return (known.index(room) if room in known else len(known), room)


def _row(info: SettingInfo) -> str:
    default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
    secret = " Secret: no message repeats it." if info.secret else ""
    return f"| `{info.variable}` | `{info.name}` | {f'`{default}`' if default else 'none'} | {info.text}{secret} |"
