"""Topics of steps that no consumer group has ever subscribed to: found by asking the bus, reported at once."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from slipstream.bus import Bus, BusError, BusUnavailable
from slipstream.slip import clock
from slipstream.slip.ledger import Ledger
from slipstream.slip.metrics import SlipMetrics
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store

log = logging.getLogger(__name__)

RECORD = "unserved"
"""The record of the store that holds a fact for each such topic."""
SERVED_MS = 10 * 60_000
"""How long a topic that has a group is not asked for again: an operator may delete the group."""


class Unserved(msgspec.Struct, frozen=True, rename="camel"):
    """A topic with messages of a step and without any consumer group."""

    step: str
    since_ms: int
    """When a message was first sent there."""


async def unserved_topics(store: Store) -> dict[str, Unserved]:
    """Return the reported topics."""
    facts = await store.facts(RECORD)
    return {topic: msgspec.json.decode(value, type=Unserved) for topic, value in facts.items()}


class UnservedTopics:
    """Watches the topics that messages are sent to. A topic without a group in two looks in a row is reported with a
    warning, a metric and a fact of the store, which `slip show` and the console read, until a group subscribes.

    Two looks, because a worker that starts at the same time may be about to subscribe.
    """

    def __init__(self, bus: Bus, store: Store, settings: SlipSettings, metrics: SlipMetrics) -> None:
        self._bus = bus
        self._store = store
        self._settings = settings
        self._ledger = Ledger(store, settings.ttl_ms)
        self._gauge = metrics.topics_unserved
        self._served: dict[str, int] = {}
        """By topic: when a group was last seen on it."""
        self._suspected: dict[str, Unserved] = {}
        self._seen_once: set[str] = set()
        """Suspected topics that had no group in the look before."""
        self._reported: dict[str, Unserved] = {}

    def sent(self, topic: str, step: str) -> None:
        """Suspect the topic of a message that was sent just now, unless a group is known to consume it."""
        if topic not in self._served and topic not in self._suspected:
            self._suspected[topic] = Unserved(step, clock.now_ms())

    async def run(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(self._settings.poll_ms / 1000)
            try:
                await self.look()
                failing = False
            except Exception:
                if not failing:
                    log.exception("topics without a worker are not known for now; trying again")
                failing = True

    async def look(self) -> None:
        """Ask the bus for the groups of all suspected and reported topics, those of other routers included."""
        now_ms = clock.now_ms()
        self._served = {topic: at_ms for topic, at_ms in self._served.items() if at_ms > now_ms - SERVED_MS}
        known = await unserved_topics(self._store)
        for topic, unserved in known.items():
            self._report(topic, unserved)
        for topic in [topic for topic in self._reported if topic not in known]:
            self._withdraw(topic)  # another router has seen a group on it, or the fact is too old
        for topic, unserved in (self._suspected | known).items():
            if await self._is_served(topic):
                self._served[topic] = now_ms
                self._suspected.pop(topic, None)
                self._seen_once.discard(topic)
                if topic in known:
                    await self._store.remove(RECORD, topic)
                    log.info("%s has a consumer group now: its messages are delivered", topic)
                    self._withdraw(topic)
            elif topic in known:
                self._suspected.pop(topic, None)
            elif topic not in self._seen_once:
                self._seen_once.add(topic)
            elif unserved.step not in await self._ledger.pauses():  # a step that is paused is not subscribed to
                value = msgspec.json.encode(unserved)
                await self._store.put(RECORD, topic, value, ttl_ms=self._settings.ttl_ms)
                self._report(topic, unserved)

    async def _is_served(self, topic: str) -> bool:
        """Where the engine does not know its groups, or does not tell them to us, nothing is reported."""
        try:
            groups = await self._bus.groups(topic)
        except BusUnavailable:
            raise
        except BusError as error:
            log.info("the consumer groups of %s are not known: %s", topic, error)
            return True
        return groups is None or bool(groups)

    def _report(self, topic: str, unserved: Unserved) -> None:
        if topic in self._reported:
            return
        self._reported[topic] = unserved
        self._gauge.labels(topic, unserved.step).set(1)
        log.warning(
            "no worker: %s, where messages of step %s are sent, has never had a consumer group; start a worker with "
            "@worker.step(%r, topic=%r), or change `topic` of the step in the route table",
            topic,
            unserved.step,
            unserved.step,
            topic,
        )

    def _withdraw(self, topic: str) -> None:
        unserved = self._reported.pop(topic, None)
        if unserved is not None:
            self._gauge.remove(topic, unserved.step)
