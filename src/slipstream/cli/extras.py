"""Commands that need an extra of the package: their help is always there, and they say what to install."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import rich_click as click

from slipstream.extras import install_command, is_installed


def need_extras(what: str, *extras: str) -> None:
    """Raise ClickException if one of the extras is not installed. `what` is what needs them, in the plural."""
    missing = [extra for extra in extras if not is_installed(extra)]
    if missing:
        raise click.ClickException(f"{what} need libraries that are not installed: {install_command(*missing)}")


def require_extra(command: click.Command, what: str, extra: str, is_enough: Callable[[], bool] = lambda: False) -> None:
    """Let a command, or all commands of a group, refuse to run without an extra. `--help` works without it.

    `is_enough` returns whether as much of the extra is installed as these commands need."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            require_extra(each, what, extra, is_enough)
        return
    callback = command.callback
    assert callback is not None, f"{command.name} does nothing"

    @functools.wraps(callback)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not is_enough():
            need_extras(what, extra)
        return callback(*args, **kwargs)

    command.callback = checked
