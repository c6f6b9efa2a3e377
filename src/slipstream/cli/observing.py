"""What every command that runs for long has: a log, and traces if they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import rich_click as click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def logging_options(default: str = "info") -> Callable[[CommandT], CommandT]:
    """Gives a command `log_level` and `log_format`."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="What is logged.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people or for machines.",
    )
    return lambda command: level(form(command))


@contextlib.contextmanager
def observed(part: str, log_level: str, log_format: str) -> Iterator[None]:
    """The log is written as said, and spans go where OTEL_… say, if they do, until the end of the `with`."""
    from slipstream.cli.logs import configure_logging  # noqa: PLC0415 - --help needs none of this
    from slipstream.telemetry import InvalidTelemetry, traced  # noqa: PLC0415

    configure_logging(log_level, log_format)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(traced(f"slipstream-{part}"))
        except InvalidTelemetry as error:
            raise click.UsageError(str(error)) from error
        yield
