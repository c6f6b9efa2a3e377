"""`slipstream pipeline prepare`: so that Spark starts faster."""

from __future__ import annotations

import rich_click as click
from rich.markup import escape

from slipstream.cli.output import EXIT_CODES, answering
from slipstream.cli.table_folder import exit_code
from slipstream.cli.values import size_text


@click.command(epilog=EXIT_CODES)
@click.option("--again", is_flag=True, help="Also if it was done before.")
def prepare(again: bool) -> None:
    """Let Spark start in half the time on this machine, from now on.

    Starts it once, and has Java keep what it loaded in a file of some 200 MB. That takes most of a minute. All commands
    that start Spark take the file, as long as Java and Spark are those it was made of; nothing depends on it.

    \b
    [bold]Examples[/]
      slipstream pipeline prepare
    """
    with answering(False, exit_code) as output:
        from slipstream.pipeline.class_archive import archive_for  # noqa: PLC0415 - --help needs none of it
        from slipstream.pipeline.java import find_java  # noqa: PLC0415

        java = find_java()
        archive = archive_for(java)
        where = escape(str(archive.path))
        if archive.is_there and not again:
            output.say(f"prepared: {where}; once more with --again")
            return
        output.note(f"[dim]starting Spark once, on the Java of {escape(str(java))}, to see what it loads[/]")
        archive.write()
        output.say(f"prepared: Spark starts in half the time ({size_text(archive.path.stat().st_size)} in {where})")
