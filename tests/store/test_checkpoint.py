from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.store import Damaged, Disk
from slipstream.store.checkpoint import (
    Checkpoint,
    SegmentInfo,
    checkpoint_numbers,
    checkpoint_path,
    read_checkpoint,
    write_checkpoint,
)

SEGMENT = SegmentInfo(1, 0, "segments/1-t/0/0-5.arrow", 0, 5, 0, 9, 1000, 50, 50, 700, 12345, [0])
CHECKPOINT = Checkpoint(7, b"the state", [SEGMENT])


def test_a_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CHECKPOINT, Disk())
    assert read_checkpoint(checkpoint_path(tmp_path, 7)) == CHECKPOINT


def test_every_byte_and_every_length_is_guarded(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CHECKPOINT, Disk())
    path = checkpoint_path(tmp_path, 7)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x04
        for bad in (bytes(damaged), whole[:position]):
            path.write_bytes(bad)
            with pytest.raises(Damaged):
                read_checkpoint(path)


def test_only_whole_checkpoints_are_counted(tmp_path: Path) -> None:
    for name in ("checkpoint-000000000012", "checkpoint-000000000003", "checkpoint-000000000013.tmp", "journal-1"):
        (tmp_path / name).touch()
    assert checkpoint_numbers(tmp_path) == [3, 12]
