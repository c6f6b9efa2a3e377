"""What was decoded into columns becomes the message again."""

from __future__ import annotations

import random

import pyarrow as pa

from slipstream.jobs.messages import DownloadTask
from slipstream.pipeline.decode import decode_protobuf
from slipstream.pipeline.replay.protobuf import message_of
from tests.pipeline.job_story import TASKS, job_oddities, jobs


def test_every_task_of_a_story_is_made_again_of_its_columns() -> None:
    rng = random.Random(3)
    told = jobs(rng, 10)
    values = [said.value for said in (next(told) for _ in range(2_000)) if said.topic == TASKS]
    values += [said.value for said in job_oddities(rng) if said.topic == TASKS]
    decoded = decode_protobuf("DownloadTask", pa.array(values, pa.binary()))
    assert len(decoded.rows) > 300
    for row, columns in zip(decoded.rows.to_pylist(), decoded.columns.to_pylist(), strict=True):
        expected = DownloadTask.FromString(values[row])
        expected.DiscardUnknownFields()
        assert message_of(DownloadTask, columns) == expected


def test_columns_that_are_not_there_are_not_set() -> None:
    assert message_of(DownloadTask, {"job_id": "j", "storage_hint": None}) == DownloadTask(job_id="j")
