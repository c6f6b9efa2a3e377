"""Slices of a file as jobs: read, checked and submitted, by an executor, through the service as by anybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.manifest import Manifest, Resource, encode_manifest, resource_trouble
from slipstream.pipeline.downloads.rows import OF_A_RESOURCE, Rows
from slipstream.pipeline.downloads.slices import Slice

if TYPE_CHECKING:
    import pyarrow as pa

PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
NOT_NOW = frozenset({429, 502, 503})
SHOWN_MAX = 5
"""Reasons for which rows were refused, of a slice."""


class SubmissionOrder(msgspec.Struct, frozen=True):
    path: str
    digest: str
    slices: list[Slice]
    service: str
    token: str
    patience_ms: int
    """What the service does not take in this time is left for later."""


class Refusal(msgspec.Struct, frozen=True):
    row: int
    why: str


class Submitted(msgspec.Struct, frozen=True):
    """What became of a slice."""

    slice: Slice
    job_id: str = ""
    """"" if none of its rows could be a resource."""
    resources: int = 0
    refused: int = 0
    refusals: list[Refusal] = []
    """The first of them."""
    left: str = ""
    """Why the service has not taken it yet."""


class SubmissionAnswer(msgspec.Struct, frozen=True):
    submitted: list[Submitted] = []
    trouble: str = ""
    """Why the file cannot be read where this ran."""


def submit_slices(data: bytes) -> bytes:
    """A SubmissionOrder, and its SubmissionAnswer."""
    order = msgspec.msgpack.decode(data, type=SubmissionOrder)
    try:
        answer = SubmissionAnswer(asyncio.run(_submit(order)))
    except InvalidJobs as error:
        answer = SubmissionAnswer(trouble=str(error))
    return msgspec.msgpack.encode(answer)


async def _submit(order: SubmissionOrder) -> list[Submitted]:
    ends_at = asyncio.get_running_loop().time() + order.patience_ms / 1000
    done = []
    async with JobsClient(order.service, order.token) as client:
        for piece, found in _pieces(Rows(Path(order.path)), order.slices):
            done.append(await _submit_one(client, order, piece, found, ends_at))
    if len(done) < len(order.slices):
        raise InvalidJobs(f"{order.path} has fewer rows than it had: it was changed meanwhile; begin anew")
    return done


def _pieces(rows: Rows, slices: list[Slice]) -> Iterator[tuple[Slice, list[tuple[int, Resource | str]]]]:
    """The rows of each, in one pass over the file: slices are in its order."""
    left = iter(slices)
    piece = next(left, None)
    found: list[tuple[int, Resource | str]] = []
    for first, batch in rows.batches(OF_A_RESOURCE, slices[0].first if slices else 0):
        while piece is not None and piece.first < first + batch.num_rows:
            begin = max(piece.first, first) - first
            end = min(piece.first + piece.count - first, batch.num_rows)
            found += _resources(batch.slice(begin, end - begin), first + begin)
            if len(found) < piece.count:
                break  # it goes on in the next batch
            yield piece, found
            piece, found = next(left, None), []
        if piece is None:
            return


def _resources(batch: pa.RecordBatch, first: int) -> Iterator[tuple[int, Resource | str]]:
    for number, row in enumerate(batch.to_pylist(), first):
        yield number, _resource(row, number)


def _resource(row: dict[str, Any], number: int) -> Resource | str:
    """Or what is wrong with it."""
    try:
        resource = msgspec.convert(
            {
                "id": str(row.get("id") or f"row-{number}"),
                "url": row["url"] or "",
                "headers": _map(row.get("headers")),
                "tags": _map(row.get("tags")),
                "checksum": row.get("checksum") or "",
                "mime": row.get("mime") or "",
            },
            Resource,
        )
    except (msgspec.ValidationError, ValueError) as error:
        return str(error).replace("`$.", "`")
    return resource_trouble(resource) or resource


def _map(value: Any) -> Any:
    """Of Arrow a map is a list of pairs, and a struct has a null for each name that it has not."""
    if isinstance(value, str):
        return json.loads(value) if value.strip() else {}
    pairs = value.items() if isinstance(value, dict) else value or ()
    return {name: text for name, text in pairs if text is not None}


async def _submit_one(
    client: JobsClient, order: SubmissionOrder, piece: Slice, found: list[tuple[int, Resource | str]], ends_at: float
) -> Submitted:
    resources: dict[str, Resource] = {}
    refusals = []
    for number, resource in found:
        if isinstance(resource, str):
            refusals.append(Refusal(number, resource))
        elif resource.id in resources:
            refusals.append(Refusal(number, f"id: {resource.id!r:.140} is that of another row of its job, too"))
        else:
            resources[resource.id] = resource
    told = Submitted(piece, refused=len(refusals), refusals=refusals[:SHOWN_MAX])
    if not resources:
        return told
    metadata = {"backfill": order.digest, "rows": [piece.first, piece.first + piece.count]}
    manifest = encode_manifest(Manifest("v1", list(resources.values()), metadata))
    key = f"backfill-{order.digest}-{piece.first}-{piece.count}"
    try:
        accepted = await _until_taken(client, piece, manifest, key, ends_at)
    except _NotTaken as error:
        return Submitted(piece, left=str(error))
    except ServiceError as error:
        refused = Refusal(piece.first, f"its job of {len(resources)} rows was refused: {error}")
        return msgspec.structs.replace(told, refused=piece.count, refusals=[refused, *refusals[: SHOWN_MAX - 1]])
    return msgspec.structs.replace(told, job_id=accepted, resources=len(resources))


class _NotTaken(Exception):
    pass


async def _until_taken(client: JobsClient, piece: Slice, manifest: bytes, key: str, ends_at: float) -> str:
    """Its id. By its key it is the same job, however often it is sent. Raises ServiceError for what it never takes."""
    pause_s = PAUSE_S
    while True:
        try:
            accepted = await client.submit(piece.job_type, manifest, idempotency_key=key, tenant=piece.tenant)
        except ServiceUnreachable as error:
            reason = str(error)
        except ServiceError as error:
            if error.status not in NOT_NOW:
                raise
            reason = str(error)
        else:
            return accepted.job_id
        if asyncio.get_running_loop().time() + pause_s >= ends_at:
            raise _NotTaken(reason)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
