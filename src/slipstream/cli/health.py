"""The health port of commands that have no other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from slipstream.health import Health

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def health_options(command: CommandT) -> CommandT:
    """Gives a command `health_port` and `health_host`, None where they are not said."""
    port = click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        help="Answer GET /health/live, /health/ready and /metrics there; also HEALTH_PORT. Without, or 0: nowhere.",
    )
    host = click.option("--health-host", help="The address of that port, 127.0.0.1 by default; also HEALTH_HOST.")
    return port(host(command))


@contextlib.contextmanager
def opened_health(port: int | None, host: str | None) -> Iterator[Health]:
    """What a command says about itself; answered where the options or the environment say so."""
    from slipstream.health import CannotListen, Health, answering_at, load_settings  # noqa: PLC0415 - --help needs none

    given = {name: value for name, value in (("port", port), ("host", host)) if value is not None}
    settings = load_settings(given, refuse=click.UsageError)
    health = Health(settings)
    with contextlib.ExitStack() as stack:
        if settings.port:
            try:
                stack.enter_context(answering_at(settings.host, settings.port, health))
            except CannotListen as error:
                raise click.UsageError(str(error)) from error
        yield health
