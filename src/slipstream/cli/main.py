"""`slipstream`: the commands there are."""

from __future__ import annotations

import rich_click as click

from slipstream import __version__
from slipstream.cli.bench import bench
from slipstream.cli.bus import bus
from slipstream.cli.bus_dlq import dlq as bus_dlq
from slipstream.cli.complete import completion
from slipstream.cli.console import console
from slipstream.cli.demo import demo
from slipstream.cli.dlq import dlq
from slipstream.cli.doctor import doctor
from slipstream.cli.group import group
from slipstream.cli.jobs import jobs
from slipstream.cli.message import message
from slipstream.cli.messages import consume, produce, read
from slipstream.cli.pipeline import pipeline
from slipstream.cli.serve import serve
from slipstream.cli.slip import slip
from slipstream.cli.table import table
from slipstream.cli.topic import topic
from slipstream.cli.up import up

click.rich_click.TEXT_MARKUP = "rich"
click.rich_click.SHOW_ARGUMENTS = True
click.rich_click.MAX_WIDTH = 110
click.rich_click.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="slipstream %(version)s")
def main() -> None:
    """Slipstream: a durable message broker that speaks the DriftQ v1 HTTP API.

    [bold]up[/] runs everything, [bold]serve[/] a broker alone; the others talk to what runs, a broker at --server or
    SLIPSTREAM_URL, and take --json.
    """


for command in (
    *(up, demo, serve, console, topic, produce, consume, read, group, message, dlq, bench),
    *(bus, slip, jobs, pipeline, table, doctor, completion),
):
    main.add_command(command)
bus.add_command(bus_dlq)

click.rich_click.COMMAND_GROUPS["slipstream"] = [
    {"name": "Run", "commands": ["up", "demo", "serve", "console", "doctor"]},
    {"name": "Messages", "commands": ["produce", "consume", "read"]},
    {"name": "Look after", "commands": ["topic", "group", "message", "dlq", "bench"]},
    {"name": "Message bus", "commands": ["bus", "slip", "jobs"]},
    {"name": "Tables", "commands": ["pipeline", "table"]},
    {"name": "Shell", "commands": ["completion"]},
]
