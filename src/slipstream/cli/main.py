"""`slipstream`: the commands there are."""

from __future__ import annotations

import rich_click as click

from slipstream import __version__
from slipstream.cli.doctor import doctor
from slipstream.cli.serve import serve

click.rich_click.TEXT_MARKUP = "rich"
click.rich_click.SHOW_ARGUMENTS = True
click.rich_click.MAX_WIDTH = 110
click.rich_click.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="slipstream %(version)s")
def main() -> None:
    """Slipstream: a durable message broker that speaks the DriftQ v1 HTTP API."""


main.add_command(serve)
main.add_command(doctor)
