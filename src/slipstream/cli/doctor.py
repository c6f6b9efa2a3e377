"""`slipstream doctor`: look at a data directory."""

from __future__ import annotations

from pathlib import Path

import rich_click as click


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repair", is_flag=True, help="Copy the directory, then repair it.")
def doctor(directory: Path, repair: bool) -> None:
    """Check a data directory and say exactly what is wrong."""
    click.echo(f"{directory} {repair}")
