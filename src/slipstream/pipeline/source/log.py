"""What is read: the log of a broker or of a stream, from any process."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from slipstream.pipeline.source.columns import LOG_SCHEMA
from slipstream.pipeline.source.errors import DataLost, Lost
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.source.standing import Standing

if TYPE_CHECKING:
    import datetime as dt

    import pyarrow as pa

log = logging.getLogger(__name__)

BATCH_ROWS = 16_384
BATCH_BYTES = 8 << 20
"""Of a record batch, about: Spark is at its best with 10,000 to 50,000 rows, and Arrow's memory in Java has pieces of 4
MiB; what is larger is given back, and asked for again, with every batch."""


LOST_MAX = 1_000
"""So many are noted: the driver of a query may lose something with every batch, for months."""


class Log(ABC):
    """Use it as a context manager. Threads may not share one."""

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self.fail_on_data_loss = fail_on_data_loss
        self.lost: list[Lost] = []
        """What was gone, and passed over because of `failOnDataLoss=false`, in the order in which it was met. For who
        reads in a task, whose warnings nobody sees."""

    @abstractmethod
    def standing(
        self,
        topics: Sequence[str] | None,
        *,
        since: dt.datetime | None = None,
        known: Standing | None = None,
        wait_ms: int = 0,
    ) -> Standing:
        """Of these topics, or of all, those that are there. With `known` and `wait_ms` it waits, at most so long, until
        one of them reaches further than that or a new one is there."""

    @abstractmethod
    def read(self, asked: Range, names: Sequence[str] = LOG_SCHEMA.names) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in their order, in batches of `LOG_SCHEMA`, or of these columns of it: what is not
        asked for is not decoded.

        Raises DataLost where some of it is gone; with `failOnDataLoss=false` it says so in the log, and goes on with
        what is there.
        """

    @abstractmethod
    def close(self) -> None: ...

    def lose(self, lost: Lost) -> None:
        """Raises DataLost; or notes it, and says it in the log, where that was wished for."""
        if self.fail_on_data_loss:
            raise DataLost(lost)
        if len(self.lost) < LOST_MAX:
            self.lost.append(lost)
        log.warning("%s; going on with what is there (failOnDataLoss=false)", lost.story)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
