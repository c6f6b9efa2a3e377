"""What became of a batch of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


class Decoded(msgspec.Struct, frozen=True):
    """Which of them could be decoded, and why the others could not."""

    rows: pa.Array
    """Index of the message of each row of `columns`; more than once where a message holds several, never down."""
    columns: pa.RecordBatch
    refused: Mapping[int, str]
    """Index of a message → the reason."""
