"""The rows of a file, cut into jobs: the same file always in the same places."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from slipstream.pipeline.downloads.rows import OF_A_JOB, Rows


class Slice(msgspec.Struct, frozen=True):
    """Rows that become one job."""

    first: int
    count: int
    job_type: str
    tenant: str


def slices_of(rows: Rows, rows_max: int, job_type: str = "", tenant: str = "") -> Iterator[Slice]:
    """What the file does not say is as given. Only the columns of jobs are read, and none of them kept: there may be
    millions of rows."""
    named = [name for name in OF_A_JOB if name in rows.columns]
    if not named:
        count = rows.count()
        for first in range(0, count, rows_max):
            yield Slice(first, min(rows_max, count - first), job_type, tenant)
        return
    first, end, of = 0, 0, None
    for _, batch in rows.batches(named):
        columns = [batch.column(name).to_pylist() for name in named]
        for values in zip(*columns, strict=True):
            if of is not None and (values != of or end - first == rows_max):
                yield _slice(first, end, dict(zip(named, of, strict=True)), job_type, tenant)
                first = end
            of = values
            end += 1
    if of is not None:
        yield _slice(first, end, dict(zip(named, of, strict=True)), job_type, tenant)


def _slice(first: int, end: int, of: dict[str, str | None], job_type: str, tenant: str) -> Slice:
    return Slice(first, end - first, str(of.get("job_type") or job_type), str(of.get("tenant") or tenant))
