"""How commands of `slipstream slip` get at the store, what they find there, and the exit code of what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from slipstream.cli.output import CONFLICT, NOT_FOUND, UNREACHABLE, answering
from slipstream.cli.values import duration_text

if TYPE_CHECKING:
    from slipstream.slip import SlipSettings
    from slipstream.slip.store import Store
    from slipstream.slip.timeline import Timeline

REMOTE = ("redis://", "rediss://", "unix://")


class NotKnown(LookupError):
    """The store keeps nothing of this."""


class DoesNotFit(RuntimeError):
    """What was asked for comes too late, or was asked for before."""


class StoreMissing(LookupError):
    """There is no store where one was named."""


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def on_a_store(command: CommandT) -> CommandT:
    """Gives a command `--store` and `--json`, an open store, its settings and an output, and an exit code for what went
    wrong."""

    @click.option("--store", help="What router and workers share: a file, or redis://…; also SLIP_STORE.")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, store: str | None, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, exit_code) as output:
            settings = slip_settings(store)

            async def opened() -> None:
                async with existing_store(settings.store) as found:
                    await command(found, settings, output, *args, **kwargs)

            asyncio.run(opened())

    return run  # type: ignore[return-value]


def slip_settings(store: str | None) -> SlipSettings:
    from slipstream.slip import load_settings  # noqa: PLC0415 - --help needs none of it

    return load_settings({} if store is None else {"store": store})


@contextlib.asynccontextmanager
async def existing_store(url: str) -> AsyncIterator[Store]:
    """To look into one that is not there would make it, and find it empty: the truth is that its name is wrong."""
    from slipstream.slip import InvalidSlip, open_store  # noqa: PLC0415

    if not url.startswith(REMOTE):
        path = url.removeprefix("sqlite://")
        if path == ":memory:":
            raise InvalidSlip("a store in memory is inside the process that uses it: there is nothing to see from here")
        if not await asyncio.to_thread(Path(path).exists):
            raise StoreMissing(f"there is no store {path}: name that of the application with --store or SLIP_STORE")
    async with open_store(url) as store:
        yield store


def exit_code(error: Exception) -> int | None:
    from slipstream import bus  # noqa: PLC0415
    from slipstream.slip import InvalidSlip, Malformed, NoRoute  # noqa: PLC0415
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


async def timeline_of(store: Store, correlation_id: str) -> Timeline | None:
    from slipstream.slip.ledger import Ledger  # noqa: PLC0415
    from slipstream.slip.lookup import look_up  # noqa: PLC0415
    from slipstream.slip.timeline import timeline  # noqa: PLC0415

    known = await look_up(store, correlation_id)
    held = await Ledger(store, ttl_ms=1).pauses()
    return None if known is None else timeline(known, held, dt.datetime.now(dt.UTC))


async def known_timeline(store: Store, settings: SlipSettings, correlation_id: str) -> Timeline:
    found = await timeline_of(store, correlation_id)
    if found is None:
        kept = duration_text(settings.ttl_ms)
        raise NotKnown(
            f"nothing is kept of {correlation_id}: the correlationId or the store is another, it is older than {kept} "
            "(SLIP_TTL_MS), or no router keeps the history (a Router does, with track=True)"
        )
    return found
