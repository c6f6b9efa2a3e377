"""`slipstream doctor`: look at a data directory, and mend it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

if TYPE_CHECKING:
    from slipstream.store.doctor import Diagnosis

_DAMAGED = 2
_IN_USE = 3

_HELP = """Check a data directory and say exactly what is wrong.

Changes nothing unless told to [bold]--repair[/]; then it first copies the directory to
[bold]DIRECTORY.before-repair-TIME[/]. The broker must not be running.

Exits with 0 if all is well (or was repaired), 1 for the torn tail a crash leaves (the broker cuts it off itself when it
starts), 2 for damage or if this is no data directory, 3 if the directory is in use.
"""


@click.command(help=_HELP)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repair", is_flag=True, help="Copy the directory, then repair it.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one JSON object.")
def doctor(directory: Path, repair: bool, as_json: bool) -> None:
    from slipstream.engine.salvage import SalvagedState  # noqa: PLC0415 - --help needs none of this
    from slipstream.store import DirectoryInUse  # noqa: PLC0415
    from slipstream.store.doctor import CannotRepair, Doctor  # noqa: PLC0415
    from slipstream.store.lock import is_foreign  # noqa: PLC0415

    if is_foreign(directory) or not any(directory.iterdir()):
        message = f"{directory} is not a data directory: there is no journal and no checkpoint in it"
        click.echo(_to_json({"error": message}) if as_json else message, err=not as_json)
        sys.exit(_DAMAGED)
    copy: Path | None = None
    refused = ""
    try:
        with Doctor(directory, SalvagedState) as physician:
            diagnosis = physician.examine()
            if repair and diagnosis.exit_code:
                try:
                    diagnosis, copy = physician.repair()
                except (CannotRepair, OSError) as error:
                    refused = str(error)
    except DirectoryInUse as error:
        click.echo(_to_json({"error": str(error)}) if as_json else str(error), err=not as_json)
        sys.exit(_IN_USE)
    if as_json:
        click.echo(_to_json({**msgspec.to_builtins(diagnosis), "copy": copy and str(copy), "refused": refused}))
    elif sys.stdout.isatty():
        _show(diagnosis, copy, refused)
    else:
        click.echo("\n".join(_lines(diagnosis, copy, refused)))
    sys.exit(0 if copy is not None else diagnosis.exit_code)


def _to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _lines(diagnosis: Diagnosis, copy: Path | None, refused: str) -> list[str]:
    lines = [f"{f.severity}: {f.path} at byte {f.position}: {f.reason}" for f in diagnosis.findings]
    return [*lines, *_story(diagnosis, copy, refused)]


def _story(diagnosis: Diagnosis, copy: Path | None, refused: str) -> list[str]:
    """What is there, what a repair does about it and what it costs."""
    lines = []
    if diagnosis.exit_code:
        verb = "the repair did this" if copy is not None else "a repair would"
        lines += [f"{verb}: {step}" for step in diagnosis.plan] if diagnosis.repairable else diagnosis.plan
        dropped = "dropped" if copy is not None else "a repair would drop"
        lines += [f"{dropped}: {loss.what}" for loss in diagnosis.losses]
        if diagnosis.repairable and not diagnosis.losses:
            lines.append(f"{dropped}: nothing that is still there; what a lost or cut off part held cannot be listed")
    if copy is not None:
        lines.append(f"the directory as it was: {copy}")
    elif diagnosis.exit_code == 1:
        lines.append("the broker starts on this and cuts the unfinished commit off itself")
    if refused:
        lines.append(f"not repaired: {refused}")
    contents = diagnosis.contents
    state = "healthy" if not diagnosis.exit_code else "after the repair" if copy is not None else "what can be kept"
    files = (
        ""
        if copy is not None
        else f"{diagnosis.journals} journal files, {diagnosis.checkpoints} checkpoints, {diagnosis.segments} segments, "
    )
    lines.append(f"{state}: {files}{contents.topics} topics, {contents.messages} messages, {contents.groups} groups")
    return lines


def _show(diagnosis: Diagnosis, copy: Path | None, refused: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    if diagnosis.findings:
        table = Table("", "file", "byte", "what is wrong", title=diagnosis.directory, title_justify="left")
        for finding in diagnosis.findings:
            style = {"note": "dim", "torn": "yellow", "damage": "bold red"}[finding.severity]
            path = Path(finding.path).name
            table.add_row(Text(finding.severity, style), Text(path), str(finding.position), Text(finding.reason))
        console.print(table)
    colours = {"healthy": "green", "after the repair": "green", "dropped": "red", "a repair would drop": "red"}
    for line in _story(diagnosis, copy, refused):
        head, colon, rest = line.partition(":")
        console.print(Text.assemble((head + colon, colours.get(head, "bold")), rest))
