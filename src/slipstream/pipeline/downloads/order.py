"""What goes to an executor with a bundle, and what comes back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from slipstream.bus import BusSettings
from slipstream.jobs.config import JobConfig
from slipstream.jobs.download.limits import HostLimit, Share
from slipstream.jobs.handed import Handed
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.task_runner import Ended, GivenBack

STORES = ("AWS_", "AZURE_", "GOOGLE_")
"""What the variables begin with by which object stores find their credentials."""


class Setup(msgspec.Struct, frozen=True):
    """What a process needs for any bundle: the bus, the storages and the limits."""

    bus: BusSettings
    jobs: JobSettings
    config: JobConfig
    environment: dict[str, str]
    """Of the object stores, for executors that have none of their own."""


class Order(msgspec.Struct, frozen=True):
    """A bundle: tasks for one process."""

    setup: bytes
    """The very same for all: by it a process knows that it has what it needs."""
    tasks: list[Handed]
    shares: dict[str, Share]
    """What this bundle may ask of its hosts."""
    held_s: dict[str, float]
    """Hosts that have asked to be left alone, elsewhere, and for how long from now."""
    shift_ms: int
    """After so long no other task is begun."""
    cut_ms: int = 0
    """After so long it ends, whatever is under way; 0: when all is done."""


class Left(msgspec.Struct, frozen=True, tag=True):
    """Not begun: the shift was over."""


class Cut(msgspec.Struct, frozen=True, tag=True):
    """It took too long for a bundle with others: it is to be begun anew, among the slow."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """Nobody knows what became of it: its end could not be told."""

    why: str


Report: TypeAlias = Ended | GivenBack | Left | Cut | Broken


class Answer(msgspec.Struct, frozen=True):
    reports: list[Report]
    """One for each task, in their order."""
    held_s: dict[str, float] = {}
    resting_s: dict[str, float] = {}
    """Until the next request, where a host has a rate: for whoever goes there next."""


def setup_of(bus: BusSettings, jobs: JobSettings, config: JobConfig, slots: int) -> bytes:
    """Of one of so many processes: downloads at a time and tasks in hand are shared out among them."""
    mine = msgspec.structs.replace(
        jobs,
        storage=_everywhere(jobs.storage),
        concurrency=_part(jobs.concurrency, slots),
        max_in_flight=_part(max(jobs.max_in_flight, jobs.concurrency), slots),
        # Of hosts that are in no order, such as those that redirects lead to.
        host_concurrency=_part(jobs.host_concurrency, slots),
        host_rate_per_s=jobs.host_rate_per_s / slots,
        # Who waits in a bundle keeps its place on the cluster.
        hold_ms=min(jobs.hold_ms, jobs.spark_shift_ms),
        token="",
    )
    storages = {
        name: msgspec.structs.replace(each, url=_everywhere(each.url)) for name, each in config.storages.items()
    }
    hosts = {name: _limit_part(limit, slots) for name, limit in config.hosts.items()}
    config = msgspec.structs.replace(config, storages=storages, hosts=hosts)
    return msgspec.msgpack.encode(Setup(bus, mine, config, _store_variables(os.environ)))


def _part(of: int, slots: int) -> int:
    """At least one, where there is a limit at all."""
    return -(-of // slots)


def _limit_part(limit: HostLimit, slots: int) -> HostLimit:
    concurrency, rate_per_s = limit.concurrency, limit.rate_per_s
    return HostLimit(
        concurrency=None if concurrency is None else _part(concurrency, slots),
        rate_per_s=None if rate_per_s is None else rate_per_s / slots,
    )


def _everywhere(storage: str) -> str:
    """A folder is meant from where the driver runs; executors are started elsewhere."""
    return storage if urlsplit(storage).scheme else str(Path(storage).absolute())


def _store_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(STORES)}
