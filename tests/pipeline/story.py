"""A scripted stream: all that the tables are made of, said by nobody but a seed.

Jobs and slips live as the real ones do; among them, and from a hundred messages on always, is everything that makes a
table difficult: what is told twice, out of order, by two who contradict each other, and what cannot be read at all. The
times within messages lie on one day in the past; where and when they are stored only the log knows: see `stored`.

Example:
    tell(server.base, 1_000)
    expected = answers(read_log(server.base))
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator

from slipstream.api import EnvelopeFields, ProduceMessage, RetryPolicyFields
from slipstream.client import Client
from tests.pipeline.job_story import DLQ, LOGS, STATUS, TASKS, job_oddities, jobs
from tests.pipeline.said import DAY, TENANTS, Said
from tests.pipeline.slip_story import PROGRESS, slip_oddities, slips

ORDERS = "orders"

PARTITIONS = {TASKS: 8, STATUS: 4, LOGS: 4, DLQ: 2, PROGRESS: 4, ORDERS: 3}

BATCH_MESSAGES = 2_000
BATCH_BYTES = 512 << 10
"""With names and numbers below a megabyte, above which aiohttp warns."""

DIED = 4
"""How many orders come to the broker's own dead letters."""


def story(count: int, seed: int = 1) -> Iterator[Said]:
    """So many messages, in the order in which they are said; the same for the same arguments."""
    rng = random.Random(f"{seed} {count}")
    odd = [*job_oddities(rng), *slip_oddities(rng), *_order_oddities(rng)]
    assert count > len(odd), f"{count} messages are too few to tell of: there are {len(odd)} oddities alone"
    rng.shuffle(odd)
    ordinary = _ordinary(rng, count)
    at = set(rng.sample(range(count), len(odd)))
    for place in range(count):
        yield odd.pop() if place in at else next(ordinary)


def _ordinary(rng: random.Random, count: int) -> Iterator[Said]:
    """Without end: some of each in turn, and within a turn one after the other of each."""
    minutes = min(20 + count // 500, 1200)
    kinds = [(jobs(rng, minutes), 27), (slips(rng, minutes), 3), (_orders(rng), 5)]
    while True:
        turn = [iter(list(itertools.islice(said, several))) for said, several in kinds]
        weights = [several for _, several in kinds]
        while turn:
            following = rng.choices(turn, weights)[0]
            if (one := next(following, None)) is not None:
                yield one
            else:
                place = turn.index(following)
                del turn[place], weights[place]


def tell(url: str, count: int, seed: int = 1, *, parts: int = 1, between: Callable[[], None] | None = None) -> None:
    """To a server, topic by topic in the order of the story. Some orders then die, as the broker has it.

    Between the parts of it, others may do something: `MemoryBroker.advance`, for one, so that not all is stored in the
    same minute.
    """
    with Client(url) as client:
        for topic, partitions in PARTITIONS.items():
            client.create_topic(topic, partitions)
        said = story(count, seed)
        for part in range(parts):
            if part and between is not None:
                between()
            produce(client, itertools.islice(said, count * (part + 1) // parts - count * part // parts))
        dying = client.fetch(ORDERS, "shop", max_messages=DIED)
        client.nack(*dying, reason="nobody has ordered this", retryable=False)


def produce(client: Client, said: Iterable[Said]) -> None:
    """In large batches."""
    batches: dict[str, list[ProduceMessage[bytes]]] = {}
    sizes: dict[str, int] = {}
    for topic, key, value, attributes, envelope in said:
        message = ProduceMessage(value=value, key=key or None, attributes=attributes, envelope=envelope)
        batch = batches.setdefault(topic, [])
        batch.append(message)
        sizes[topic] = sizes.get(topic, 0) + len(value)
        if len(batch) >= BATCH_MESSAGES or sizes[topic] >= BATCH_BYTES:
            client.produce_batch(topic, batches.pop(topic))
            del sizes[topic]
    for topic, batch in batches.items():
        client.produce_batch(topic, batch)


# An ordinary topic


def _orders(rng: random.Random) -> Iterator[Said]:
    """What agents and shops say: some with an envelope, some with attributes, most with neither."""
    for number in itertools.count():
        key = b"" if rng.random() < 0.3 else b"customer:%d" % rng.randrange(500)
        value = rng.randbytes(rng.randrange(60)) if rng.random() < 0.3 else b'{"order":%d}' % number
        attributes = None
        if rng.random() < 0.3:
            attributes = {"source": rng.choice(("web", "shop", "Laden Süd")), "number": str(number)}
        envelope = _envelope(rng, number) if rng.random() < 0.5 else None
        yield Said(ORDERS, key, value, attributes, envelope)


STEPS = ("think", "search", "answer", "review")


def _envelope(rng: random.Random, number: int) -> EnvelopeFields:
    """Each run has a handful of messages; some say nothing of a run, or of a step."""
    run_id = f"run-{number // 12}"
    step = rng.randrange(len(STEPS))
    shape = rng.randrange(10)
    if shape == 0:
        return EnvelopeFields(tenant_id=rng.choice(TENANTS), labels={"tier": "gold", "região": "sul"})
    if shape == 1:
        return EnvelopeFields(run_id=run_id, idempotency_key=f"order-{number}")
    if shape == 2:
        return EnvelopeFields(step_id=STEPS[step], partition_override=rng.randrange(PARTITIONS[ORDERS]))
    if shape == 3:
        policy = RetryPolicyFields(max_attempts=7, backoff_ms=250, max_backoff_ms=60_000)
        return EnvelopeFields(run_id=run_id, step_id=STEPS[step], retry_policy=policy, deadline=DAY.replace(year=2126))
    # The parent is not always named, and not always the same.
    parent = STEPS[rng.randrange(step)] if step and rng.random() < 0.8 else None
    return EnvelopeFields(
        run_id=run_id, step_id=STEPS[step], parent_step_id=parent, tenant_id=rng.choice(TENANTS) or None
    )


def _order_oddities(rng: random.Random) -> Iterator[Said]:
    yield Said(ORDERS, b"", b"")
    yield Said(ORDERS, b"\x00\xff\xfe", bytes(range(256)))
    yield Said(ORDERS, "ключ".encode(), rng.randbytes(200_000), {"": "a name of nothing", "nothing": ""})
    policy = RetryPolicyFields(max_attempts=2)
    yield Said(ORDERS, b"", b"tried twice", {}, EnvelopeFields(run_id="run-odd", step_id="think", retry_policy=policy))
    # The same step of the same run, in another topic.
    envelope = EnvelopeFields(run_id="run-odd", step_id="think", parent_step_id="wish", tenant_id="acme")
    yield Said(TASKS, b"", b"\xff\xff", None, envelope)
