"""What the console is told about: the broker, and whatever else there is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from slipstream.api.events import Stats
from slipstream.api.keys import KeyPlace
from slipstream.api.overview import SearchHit, Source
from slipstream.api.server import ServerCondition
from slipstream.console.logs import PartLogs
from slipstream.console.metrics import ConsoleMetrics
from slipstream.console.parts import PartsFile
from slipstream.console.problems import Seen
from slipstream.console.settings import Thresholds


class Away(Exception):
    """The broker does not answer: why, in words."""


class TopicLog(msgspec.Struct, frozen=True):
    """The beginning of the log of a topic."""

    created_ms: int
    first_offsets: tuple[int, ...]
    """By partition."""


class LogRecord(msgspec.Struct, frozen=True):
    """A message of a log."""

    offset: int
    timestamp_ms: int
    value: bytes


class StatsSource(Protocol):
    """Numbers of the whole broker."""

    def samples(self, interval_ms: int) -> AsyncGenerator[Stats, None]:
        """Without end. Raises Away while there are none; it may be asked again."""

    async def trouble(self) -> str:
        """Why messages are refused; empty while they are taken. Raises Away."""

    async def conditions(self) -> list[ServerCondition]:
        """What should be mended at the broker while it takes messages. Raises Away."""

    async def places(self, key: str) -> list[KeyPlace]:
        """Where the messages of an idempotency key are. Raises Away."""

    async def log_of(self, topic: str) -> TopicLog | None:
        """Return where the log of a topic begins; None if there is no such topic. Raise Away."""

    def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        """Yield what a partition holds now, from an offset on. Raise Away."""

    async def close(self) -> None: ...


class Noun(ABC):
    """Slips, jobs or tables: their calls, what is wrong with them, and what of them is found by a word."""

    what: str
    """Such as `slips`, in words."""
    link: str
    """Its page."""

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]: ...

    async def look(self, seen: Seen) -> Seen:
        """Adds what is wrong. Raises Refused where it cannot be asked."""
        return seen

    async def search(self, text: str) -> list[SearchHit]:
        """Raises Refused where it cannot be asked."""
        return []

    def stop(self) -> None:  # noqa: B027 - most have nothing that goes on
        """What would go on for ever ends."""

    async def close(self) -> None:  # noqa: B027 - and nothing to close
        """No call comes any more."""


class Rest(Protocol):
    """Answers what is none of the console's own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def stop(self) -> None: ...

    async def close(self) -> None: ...


class Sources:
    """All of it. `rest` answers every call that is none of the console's own."""

    def __init__(
        self,
        stats: StatsSource,
        *,
        slips: Noun | None = None,
        jobs: Noun | None = None,
        tables: Noun | None = None,
        bus_dead_letters: Noun | None = None,
        more: Sequence[Noun] = (),
        parts: PartsFile | None = None,
        logs: PartLogs | None = None,
        rest: Rest | None = None,
        thresholds: Thresholds | None = None,
        look_ms: int = 10_000,
        state: str = "",
        metrics: ConsoleMetrics | None = None,
    ) -> None:
        self.stats = stats
        self.slips = slips
        self.jobs = jobs
        self.tables = tables
        self.bus_dead_letters = bus_dead_letters
        self.more = more
        """Of the broker itself: topics and groups, to be searched, and on NATS to be read."""
        self.parts = parts or PartsFile("", lambda path, pid: False)
        self.logs = logs or PartLogs("")
        self.rest = rest
        self.thresholds = thresholds or Thresholds()
        self.look_ms = look_ms
        self.state = state
        """The file that keeps which problems are acknowledged; empty for none."""
        # In the broker's process nobody asks for them.
        self.metrics = metrics or ConsoleMetrics(CollectorRegistry())

    @property
    def named(self) -> list[Source]:
        """The names of the optional sources that are there."""
        there: dict[Source, Noun | None] = {"slips": self.slips, "jobs": self.jobs, "tables": self.tables}
        return [name for name, noun in there.items() if noun is not None]

    @property
    def nouns(self) -> list[Noun]:
        known = (self.slips, self.jobs, self.tables, self.bus_dead_letters, *self.more)
        return [each for each in known if each is not None]

    def stop(self) -> None:
        for each in self.nouns:
            each.stop()
        if self.rest is not None:
            self.rest.stop()

    async def close(self) -> None:
        for each in self.nouns:
            await each.close()
        await self.stats.close()
        if self.rest is not None:
            await self.rest.close()
