from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.store.damage import Damaged, TornTail
from slipstream.store.frame import (
    FILE_HEADER_SIZE,
    FRAME_HEADER_SIZE,
    FileHeader,
    Frame,
    Gap,
    encode_frame,
    read_frames,
    scan_frames,
)

HEADER = FileHeader(7, 0x1234_5678_9ABC_DEF0, 99)
PATH = Path("journal-000000000007")


def file_of(*payloads: bytes, synced: int | None = None) -> bytes:
    """A journal file; each frame was written when all before it was on disk, unless `synced` says otherwise."""
    data = HEADER.encode()
    for payload in payloads:
        data += encode_frame(HEADER.seed, payload, len(data) if synced is None else min(synced, len(data))) + payload
    return data


def test_a_header_reads_back_as_it_was_written() -> None:
    assert FileHeader.decode(PATH, HEADER.encode()) == HEADER


def test_every_bit_of_the_header_is_guarded() -> None:
    encoded = HEADER.encode()
    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 0x10
        with pytest.raises(Damaged):
            FileHeader.decode(PATH, bytes(damaged))


@pytest.mark.parametrize("length", range(FILE_HEADER_SIZE))
def test_a_short_header_is_damage(length: int) -> None:
    with pytest.raises(Damaged, match="cut short"):
        FileHeader.decode(PATH, HEADER.encode()[:length])


def test_frames_come_back_in_order_with_their_positions() -> None:
    frames = list(read_frames(PATH, file_of(b"one", b"", b"three"), HEADER, last=True))
    assert frames == [
        Frame(FILE_HEADER_SIZE, b"one", FILE_HEADER_SIZE),
        Frame(FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 3, b"", FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 3),
        Frame(FILE_HEADER_SIZE + 2 * FRAME_HEADER_SIZE + 3, b"three", FILE_HEADER_SIZE + 2 * FRAME_HEADER_SIZE + 3),
    ]


def test_a_flip_anywhere_in_the_last_frame_is_a_torn_tail_and_in_the_middle_damage() -> None:
    data = file_of(b"first", b"second")
    second = FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 5
    for position in range(FILE_HEADER_SIZE, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        if position >= second:
            frames = list(read_frames(PATH, bytes(damaged), HEADER, last=True))
            assert frames[0] == Frame(FILE_HEADER_SIZE, b"first", FILE_HEADER_SIZE)
            assert isinstance(frames[1], TornTail)
            assert frames[1].position == second
        else:
            with pytest.raises(Damaged, match=f"it was on disk when the commit at byte {second} was written") as caught:
                list(read_frames(PATH, bytes(damaged), HEADER, last=True))
            assert caught.value.position == FILE_HEADER_SIZE


def test_a_bad_end_of_a_closed_file_is_damage() -> None:
    with pytest.raises(Damaged, match="a later journal file exists"):
        list(read_frames(PATH, file_of(b"one")[:-1], HEADER, last=False))


def test_a_frame_inside_a_payload_is_not_taken_for_one_behind_a_torn_tail() -> None:
    """Not even one that a client copied from another file, where it was good."""
    other = FileHeader(7, 42, 0)
    forged = encode_frame(other.seed, b"forged", 0) + b"forged"
    items = list(read_frames(PATH, file_of(b"good", b"xx" + forged + b"yy")[:-1], HEADER, last=True))
    assert [type(item) for item in items] == [Frame, TornTail]


def test_a_scan_goes_on_behind_what_is_damaged() -> None:
    data = bytearray(file_of(b"first", b"second", b"third"))
    second = FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 5
    data[second + FRAME_HEADER_SIZE] ^= 1
    first, gap, third = scan_frames(bytes(data), HEADER.seed)
    assert isinstance(first, Frame)
    assert isinstance(third, Frame)
    assert isinstance(gap, Gap)
    assert (first.payload, gap.position, third.payload) == (b"first", second, b"third")
    assert gap.length == FRAME_HEADER_SIZE + len(b"second")


def test_what_was_never_known_to_be_on_disk_is_a_torn_tail_even_with_good_frames_behind_it() -> None:
    """A disk that loses power may keep the later of two commits and lose the earlier; neither was promised."""
    data = bytearray(file_of(b"first", b"second", b"third", synced=FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 5))
    second = FILE_HEADER_SIZE + FRAME_HEADER_SIZE + 5
    data[second + FRAME_HEADER_SIZE] ^= 1
    first, torn = read_frames(PATH, bytes(data), HEADER, last=True)
    assert isinstance(first, Frame)
    assert torn == TornTail(PATH, second, len(data) - second, "the frame does not match its checksum")
