"""How commands of `slipstream slip` get at the store, and the exit code of what went wrong."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from slipstream.cli.output import CONFLICT, NOT_FOUND, UNREACHABLE, answering

if TYPE_CHECKING:
    from slipstream.slip import SlipSettings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def on_a_store(command: CommandT) -> CommandT:
    """Gives a command `--store` and `--json`, an open store, its settings and an output, and an exit code for what went
    wrong."""

    @click.option("--store", help="What router and workers share: a file, or redis://…; also SLIP_STORE.")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, store: str | None, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, exit_code) as output:
            from slipstream.slip.oversight import existing_store  # noqa: PLC0415 - --help needs none of it

            settings = slip_settings(store)

            async def opened() -> None:
                async with existing_store(settings.store) as found:
                    await command(found, settings, output, *args, **kwargs)

            asyncio.run(opened())

    return run  # type: ignore[return-value]


def slip_settings(store: str | None) -> SlipSettings:
    from slipstream.slip import load_settings  # noqa: PLC0415 - --help needs none of it

    return load_settings({} if store is None else {"store": store})


def exit_code(error: Exception) -> int | None:
    from slipstream import bus  # noqa: PLC0415
    from slipstream.slip import InvalidSlip, Malformed, NoRoute  # noqa: PLC0415
    from slipstream.slip.oversight import DoesNotFit, NotKnown, StoreMissing  # noqa: PLC0415
    from slipstream.slip.routes.condition import ConditionFailed  # noqa: PLC0415
    from slipstream.slip.routes.problems import RouteTableInvalid  # noqa: PLC0415
    from slipstream.slip.store import StoreUnavailable, UnusableStore  # noqa: PLC0415

    codes: list[tuple[type[Exception], int]] = [
        (NotKnown, NOT_FOUND),
        (DoesNotFit, CONFLICT),
        (InvalidSlip, 2),
        (Malformed, 2),
        (RouteTableInvalid, 2),
        (NoRoute, NOT_FOUND),
        (ConditionFailed, 1),
        (StoreMissing, UNREACHABLE),
        (StoreUnavailable, UNREACHABLE),
        (UnusableStore, 1),
        (bus.InvalidArgument, 2),
        (bus.BusUnavailable, UNREACHABLE),
        (bus.BusError, 1),
        (OSError, 1),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), None)
