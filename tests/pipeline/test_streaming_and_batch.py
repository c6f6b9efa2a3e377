"""The boundaries of batches and of runs make no difference to the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.client import Client
from slipstream.testing import MemoryBroker
from tests.pipeline.compare import KEYS, assert_same_tables
from tests.pipeline.made import BEFORE_MIDNIGHT, make
from tests.pipeline.story import PARTITIONS, produce, story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_many_small_batches_of_several_runs_come_to_the_same_as_one(spark: SparkSession, tmp_path: Path) -> None:
    """Topics and partitions come to be between two runs, and midnight passes."""
    said = list(story(240))
    with MemoryBroker(start=BEFORE_MIDNIGHT) as broker, Client(broker.url) as client:

        def run() -> None:
            make(spark, broker.url, tmp_path / "often", batch_rows=120)

        for topic in list(PARTITIONS)[1:]:
            client.create_topic(topic, PARTITIONS[topic])
        late = next(iter(PARTITIONS))
        produce(client, [one for one in said[:120] if one.topic != late])
        run()
        client.create_topic(late, PARTITIONS[late])
        for part in range(120, 240, 40):
            broker.advance(minutes=1)
            produce(client, said[part : part + 40])
        run()
        make(spark, broker.url, tmp_path / "once")
    for name in KEYS:
        assert_same_tables(name, tmp_path / "often" / name, tmp_path / "once" / name)
