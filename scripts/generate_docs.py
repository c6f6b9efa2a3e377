"""Writes docs/configuration.md from the settings themselves. `--check` only says whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from slipstream.cli.serve import show_value
from slipstream.settings import PROFILES, SettingInfo, describe_settings

PATH = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

<!-- Written by scripts/generate_docs.py from slipstream/settings.py: change it there. -->

Every setting has one name in three places: an option of `slipstream serve`, a variable in the environment, and a key in
the TOML file given with `--config` (or `SLIPSTREAM_CONFIG`): `--max-in-flight 64`, `SLIPSTREAM_MAX_IN_FLIGHT=64`,
`max_in_flight = 64`. The command line wins over the environment, the environment over the file, the file over the
profile, the profile over the defaults. A value that makes no sense is named with its source, and nothing starts.

Times are in milliseconds, sizes in bytes. A switch is `--name` or `--no-name`; in the environment `true` or `false`.

They hold for all topics, old and new, except where a topic was given a value of its own.
"""

_DRIFTQ = """\
## Flags of DriftQ

So that scripts written for DriftQ start this server: `-addr HOST:PORT` or `:PORT`, `-wal` (the same as `--data`; a
directory), `-reset-wal` (forget everything stored, then start), `-log-level`, `-log-format`.
"""


def render() -> str:
    return "\n".join([_INTRODUCTION, *_sections(), *_profile(), _DRIFTQ])


def _sections() -> Iterator[str]:
    for section, settings in groupby(describe_settings(), lambda info: info.section):
        yield f"## {section}\n"
        yield "| option | environment | default | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, settings)
        yield ""


def _row(info: SettingInfo) -> str:
    meaning = info.text
    if info.choices:
        meaning += " One of " + ", ".join(f"`{choice}`" for choice in info.choices) + "."
    return f"| `{info.option}` | `{info.environment}` | {_default(info)} | {meaning} |"


def _default(info: SettingInfo) -> str:
    if info.kind is bool:
        return "on" if info.default else "off"
    return show_value(info.name, info.default) if info.default != "" else "none"


def _profile() -> Iterator[str]:
    yield "## The profile `driftq-v1`\n"
    yield "`--profile driftq-v1` changes these defaults to DriftQ's, which are sized for demonstrations:\n"
    yield "| setting | value |"
    yield "|---|---|"
    for name, value in PROFILES["driftq-v1"].items():
        yield f"| `{name}` | {str(value).lower() if isinstance(value, bool) else value} |"
    yield ""


def main(arguments: list[str]) -> int:
    text = render()
    if arguments == ["--check"]:
        return 0 if PATH.exists() and PATH.read_text() == text else 1
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
