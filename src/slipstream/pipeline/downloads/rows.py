"""A table of resources in a file, read a piece at a time: Parquet, CSV, or JSON by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.jobs.errors import InvalidJobs

if TYPE_CHECKING:
    import pyarrow as pa

OF_A_RESOURCE = ("id", "url", "headers", "tags", "checksum", "mime")
OF_A_JOB = ("job", "job_type", "tenant")
"""Rows that stand together and have the same are of one job."""
BATCH_ROWS = 10_000
LINES_BYTES = 1 << 20
KINDS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "lines",
    ".jsonl": "lines",
}


class Rows:
    """Example:
    rows = Rows(Path("resources.parquet"))
    for first, batch in rows.batches(["url"], start=1_000):
        ...  # row `first` of the file is row 0 of the batch
    """

    def __init__(self, path: Path) -> None:
        """Raises InvalidJobs for what is no such file."""
        self.path = path
        kind = KINDS.get(path.suffix.lower())
        if kind is None:
            raise InvalidJobs(f"{path}: a table of resources is a file that ends in {', '.join(KINDS)}")
        self._kind = kind
        self.columns = self._look()
        unknown = [name for name in self.columns if name not in {*OF_A_RESOURCE, *OF_A_JOB}]
        if "url" not in self.columns or unknown:
            raise InvalidJobs(
                f"{path} has the columns {', '.join(self.columns) or '(none)'}: url is needed, and there may be "
                f"{', '.join(name for name in (*OF_A_RESOURCE, *OF_A_JOB) if name != 'url')}"
            )

    def digest(self) -> str:
        """Of what is in the file, by which it is known again wherever it lies."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def count(self) -> int:
        if self._kind == "parquet":
            import pyarrow.parquet as pq  # noqa: PLC0415

            return int(pq.read_metadata(self.path).num_rows)
        return sum(batch.num_rows for _, batch in self.batches(["url"]))

    def batches(self, columns: Sequence[str], start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each with the number of its first row; the first may begin before `start`."""
        wanted = [name for name in columns if name in self.columns]
        read = {"parquet": self._parquet, "csv": self._csv, "lines": self._lines}[self._kind]
        for first, batch in read(wanted, start):
            if first + batch.num_rows > start:
                yield first, batch

    def _look(self) -> list[str]:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            if self._kind == "parquet":
                return list(pq.read_schema(self.path).names)
            if self._kind == "csv":
                with self._open_csv() as reader:
                    return list(reader.schema.names)
            return sorted({name for _, batch in self._lines(None, 0) for name in batch.schema.names})
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise InvalidJobs(f"{self.path} cannot be read: {error}") from error

    def _parquet(self, columns: list[str], start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        import pyarrow.parquet as pq  # noqa: PLC0415

        with pq.ParquetFile(self.path) as file:
            first = 0
            groups: list[int] = []
            for number in range(file.num_row_groups):
                rows = file.metadata.row_group(number).num_rows
                if not groups and first + rows <= start:
                    first += rows  # of a group before the start nothing is read
                else:
                    groups.append(number)
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns) if groups else ():
                yield first, batch
                first += batch.num_rows

    def _csv(self, columns: list[str], start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = 0
        with self._open_csv() as reader:
            for batch in reader:
                yield first, batch.select(columns)
                first += batch.num_rows

    def _open_csv(self) -> Any:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import csv  # noqa: PLC0415

        # All of it is text: an id of 0017 is not 17.
        types = dict.fromkeys((*OF_A_RESOURCE, *OF_A_JOB), pa.string())
        return csv.open_csv(self.path, convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True))

    def _lines(self, columns: list[str] | None, start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        import pyarrow as pa  # noqa: PLC0415

        first = 0
        with self.path.open("rb") as file:
            while lines := file.readlines(LINES_BYTES):
                rows = [_object(line) for line in lines if line.strip()]
                if not rows:
                    continue
                # A map is a struct to Arrow, of the names of all: as text each has its own.
                names = columns if columns is not None else sorted({name for row in rows for name in row})
                yield first, pa.record_batch({name: _texts(rows, name) for name in names})
                first += len(rows)


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"a line of it is no object: {line[:80]!r}")  # noqa: TRY004 - of a file, as all others
    return found


def _texts(rows: list[dict[str, Any]], name: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    values = (row.get(name) for row in rows)
    return pa.array(
        [value if value is None or isinstance(value, str) else json.dumps(value) for value in values], pa.string()
    )
