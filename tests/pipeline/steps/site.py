"""A server with messages for a step, and what comes out of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slipstream.api import ProduceMessage
from slipstream.client import Client
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.steps.runner import StepRunner, Told
from slipstream.slip.event import Event, RoutingStep, encode
from slipstream.slip.incoming import receive
from slipstream.slip.slip import find
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from tests.pipeline.steps.events import TOPIC, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.steps import SparkStep


class Site:
    """The topics of a step on a server, with a prefix of their own."""

    def __init__(self, url: str, prefix: str, partitions: int = 3) -> None:
        self.url, self.prefix = url, prefix
        self.client = Client(url)
        self.topic, self.router = prefix + TOPIC, prefix + ROUTER
        for topic in (self.topic, self.router, prefix + DEAD_LETTERS):
            self.client.create_topic(topic, partitions)
        self.told: list[Told] = []

    def put(self, payloads: list[dict[str, Any]], first: int = 0) -> None:
        messages = [
            ProduceMessage(value=encode(event(first + number, payload)), key=f"c-{first + number}".encode())
            for number, payload in enumerate(payloads)
        ]
        for at in range(0, len(messages), 1_000):
            self.client.produce_batch(self.topic, messages[at : at + 1_000])

    def put_numbers(self, count: int, first: int = 0, poison: dict[int, str] | None = None) -> None:
        numbers = range(first, first + count)
        self.put([{"n": n, "poison": (poison or {}).get(n)} for n in numbers], first)

    def runner(self, spark: SparkSession, step: SparkStep[Any, Any], **settings: Any) -> StepRunner:
        found = load_settings({"url": self.url, "step_rows": 100, **settings}, {})
        return StepRunner(spark, step, found, prefix=self.prefix, told=self.told.append)

    def run(self, spark: SparkSession, step: SparkStep[Any, Any], **settings: Any) -> None:
        """All that is there."""
        self.runner(spark, step, **settings).run(threading.Event(), once=True)

    def answers(self) -> Iterator[tuple[Event, RoutingStep]]:
        partitions = len(self.client.topic(self.router).partitions)
        for partition in range(partitions):
            for message in self.client.scan(self.router, partition):
                found = receive(message.value)
                step = find(found, "embed")
                assert step is not None
                yield found, step

    def squares(self) -> dict[int, int]:
        """By `n`; fails where an answer is there twice."""
        found = [(each.payload["n"], each.payload["square"]) for each, step in self.answers() if step.status == "OK"]
        twice = [n for n, count in Counter(n for n, _ in found).items() if count > 1]
        assert not twice, f"answered twice: {twice}"
        return dict(found)

    def errors(self) -> dict[int, str]:
        return {each.payload["n"]: step.error.code for each, step in self.answers() if step.error is not None}

    @property
    def lag(self) -> int:
        return self.client.group(self.topic, "step-embed").lag
