"""Every kind of command once, on a clock of its own: what a test of crashes and damage tells step by step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from slipstream.api import Place
from slipstream.broker import (
    Broker,
    BrokerConfig,
    Envelope,
    NewMessage,
    Partition,
    RetryPolicy,
    TopicOverrides,
    decode_meta,
)
from slipstream.engine import ManualClock
from tests.store.node import LONG_MS, Node

START_MS = 1_700_000_000_000
CONFIG = BrokerConfig(lease_ms=LONG_MS, delayed_max=3)

Step: TypeAlias = Callable[[Node], object]


class Story:
    """On a clock of its own, whatever happens to the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ms = START_MS

    @classmethod
    def at(cls, other: Story, directory: Path) -> Story:
        """It goes on from a copy."""
        made = cls(directory)
        made.now_ms = other.now_ms
        return made

    def node(self, directory: Path | None = None) -> Node:
        self.clock = ManualClock(self.now_ms)
        node = Node(directory or self.directory, broker=CONFIG, clock=self.clock, journal_age_ms=1 << 40)
        node.engine._flush()  # what the first turn of the loop does: the clock is set
        return node

    def state(self, node: Node) -> Any:
        """Without deadlines that have passed: they come up once more after a restart, and find nothing to do."""
        state = node.state()
        state[3] = [deadline for deadline in state[3] if deadline[0] > self.now_ms]
        return state


def batch(*keys: bytes, once: str = "", in_ms: int | None = None) -> list[NewMessage]:
    due_ms = None if in_ms is None else START_MS + in_ms
    return [
        NewMessage(key, b"v-" + key, Envelope(idempotency_key=once) if once else None, None, due_ms) for key in keys
    ]


def produce(*keys: bytes, once: str = "", in_ms: int | None = None, key: str = "") -> Step:
    messages = batch(*keys, once=once, in_ms=in_ms)
    return lambda node: node.perform(lambda broker, now_ms: broker.produce_batch(now_ms, "t", messages, key))


def commit(sequence: int, *keys: bytes) -> Step:
    def each(broker: Broker, now_ms: int) -> None:
        parts = [f"{sequence}-{n}" for n in range(len(keys))]
        for part, key in zip(parts, keys, strict=True):
            broker.commits.stage(now_ms, part, "writer", sequence, "t", batch(key), 1)
        broker.commits.commit(now_ms, "writer", sequence, parts)

    return lambda node: node.perform(each)


def with_deadline(in_ms: int) -> Step:
    envelope = Envelope(deadline=dt.datetime.fromtimestamp((START_MS + in_ms) / 1000, dt.UTC))
    return lambda node: node.produce("t", b"mortal", b"d", envelope)


def settle(what: str, *offsets: int, **how: object) -> Step:
    def each(broker: Broker, now_ms: int) -> None:
        group = broker.group("t", "g")
        for offset in offsets:
            [number] = [p.partition.number for p in group.progress if offset in p.leases]
            getattr(broker, what)(now_ms, "t", "g", number, offset, "o", **how)

    return lambda node: node.perform(each)


def ack_together(*offsets: int) -> Step:
    def together(broker: Broker, now_ms: int) -> None:
        leases = [(p.partition.number, offset) for p in broker.group("t", "g").progress for offset in p.leases]
        places = [Place(number, offset) for number, offset in leases if offset in offsets]
        assert broker.ack_batch(now_ms, "t", "g", places, "o") == []

    return lambda node: node.perform(together)


def seek(find: Callable[[Partition], int], group: str = "g", partition: int | None = None) -> Step:
    return lambda node: node.perform(lambda broker, now_ms: broker.seek(now_ms, "t", group, find, partition))


def pause(paused: bool) -> Step:
    return lambda node: node.perform(lambda broker, now_ms: broker.pause(now_ms, "t", "g", paused=paused))


def redrive(node: Node) -> None:
    """Send every dead letter to the group that it failed for; to all groups where that one is gone."""

    def every(broker: Broker, now_ms: int) -> None:
        for partition in broker.topic("dlq.t").partitions:
            for index in range(partition.first_index, partition.committed):
                envelope = decode_meta(partition.log.read(index).meta).envelope
                assert envelope is not None
                assert envelope.dlq is not None
                gone = envelope.dlq.group not in broker.topic("t").groups
                broker.intake.redrive(now_ms, partition, index, all_groups=gone)

    node.perform(every)


def advance(node: Node, story: Story, ms: int) -> None:
    story.clock.advance(ms)
    story.now_ms += ms
    node.engine._flush(everything=True)
    node.until(lambda: not node.engine._in_journal)


STORY: dict[str, Step | int] = {
    "create": lambda node: node.create("t", 2, retry=RetryPolicy(0, LONG_MS, LONG_MS)),
    "batch": produce(b"a", b"b", b"c", b"d"),
    "batch with a key": produce(b"e", b"f", key="batch"),
    "batch again": produce(b"e", b"f", key="batch"),
    "batch with known messages": produce(b"g", b"h", once="once", key="known"),
    "delayed": produce(b"a", b"b", in_ms=60_000),
    "delayed by more": produce(b"a", b"b", b"c", b"d", in_ms=120_000),
    "deadlines": with_deadline(90_000),
    "read": lambda node: node.take("t", 7),
    "ack": settle("ack", 0, 2),
    "ack together": ack_together(4, 5),
    "nack with a delay": settle("nack", 1, delay_ms=30_000),
    "reject": settle("nack", 3, reason="bad", retryable=False),
    "extend": settle("extend", 6, lease_ms=LONG_MS * 2),
    "grow": lambda node: node.perform(
        lambda b, now_ms: b.change_topic(now_ms, "t", TopicOverrides(max_in_flight=50), 3)
    ),
    "produce to the new": produce(*(b"user:%d" % n for n in range(9))),
    "a minute passes": 60_000,
    "read what is due": lambda node: node.take("t", 2),
    "pause": pause(True),
    "redrive": redrive,
    "redrive again": redrive,
    "a group that starts at the end": seek(lambda partition: partition.committed, "late"),
    "send it back": seek(lambda partition: partition.log.index_from(5), "late"),
    "send one partition back": seek(lambda partition: partition.first_index, partition=0),
    "resume": pause(False),
    "read again": lambda node: node.take("t", 5),
    "deadline passes": 60_000,
    "forget": lambda node: node.perform(lambda broker, _: broker.forget_group("t", "late")),
    "delete what is held and watched": lambda node: node.delete("t"),
    "an hour passes": LONG_MS,
    "create anew": lambda node: node.create("t", 1),
    "batch key of the old one": produce(b"e", b"f", key="batch"),
    "commit": commit(3, b"k", b"l"),
    "commit again": commit(3, b"k", b"l"),
    "commit of nothing": commit(4),
    "read the new": lambda node: node.take("t", 2),
    "dead letters go": lambda node: node.delete("dlq.t"),
}


def tell(node: Node, story: Story, name: str) -> None:
    step = STORY[name]
    if isinstance(step, int):
        advance(node, story, step)
    else:
        step(node)
    node.engine._flush(everything=True)
    node.until(lambda: not node.engine._in_journal)
