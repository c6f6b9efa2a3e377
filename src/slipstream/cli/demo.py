"""`slipstream demo`: what the platform does, in a minute."""

from __future__ import annotations

import asyncio
from pathlib import Path

import rich_click as click

from slipstream.cli.extras import need_extras
from slipstream.cli.output import UNREACHABLE, answering

EXIT_CODES = """[bold]Exit codes:[/] 0 everything was as it should be, 1 something was not, 5 a part does not answer,
130 interrupted.
"""


@click.command(epilog=EXIT_CODES)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("slipstream-data"),
    show_default=True,
    envvar="SLIPSTREAM_DATA",
    help="The directory of `slipstream up`; also SLIPSTREAM_DATA.",
)
@click.option("--no-pipeline", is_flag=True, help="Without Spark: no tables at the end.")
def demo(data: Path, no_pipeline: bool) -> None:
    """Show what this is, in about a minute.

    Downloads files from a web server that misbehaves, sends chat messages along a routing slip, some of which are
    retried and one of which nobody can answer, leaves a refund for you to approve, makes tables of it all, gives a dead
    letter its second chance, and says where to look.

    Uses what [bold]slipstream up[/] runs in another terminal; where nothing runs, it starts what it needs, and stops
    it at the end. May be run any number of times.

    \b
    [bold]Examples[/]
      slipstream demo
      slipstream demo --no-pipeline
    """
    need_extras("the scenes of this demonstration", "jobs", "slip")
    from slipstream.bus import BusUnavailable  # noqa: PLC0415
    from slipstream.cli.demo_scenes import play  # noqa: PLC0415
    from slipstream.client import ConnectionFailed, SlipstreamError  # noqa: PLC0415
    from slipstream.demo.scene import SceneFailed  # noqa: PLC0415
    from slipstream.demo.turn import turn  # noqa: PLC0415
    from slipstream.jobs.client import ServiceUnreachable  # noqa: PLC0415
    from slipstream.jobs.errors import JobsError  # noqa: PLC0415

    def code(error: Exception) -> int | None:
        if isinstance(error, ServiceUnreachable | ConnectionFailed | BusUnavailable):
            return UNREACHABLE
        return 1 if isinstance(error, SceneFailed | JobsError | SlipstreamError | OSError) else None

    with (
        answering(False, code) as output,
        turn(data / "demo", lambda: output.note("another demonstration runs here: waiting for its end")),
    ):
        asyncio.run(play(output, data, with_pipeline=not no_pipeline))
