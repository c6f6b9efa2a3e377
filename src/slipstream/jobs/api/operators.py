"""`/operators/…`: how jobs stand, what was logged, dead letters, and whether all is well."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slipstream.jobs.api.answers import json_answer
from slipstream.jobs.api.body import read_body
from slipstream.jobs.controls import Held
from slipstream.jobs.dead_letters import Letter, Selection
from slipstream.jobs.ledger import JobSnapshot
from slipstream.jobs.ledger.snapshot import State
from slipstream.jobs.messages import JobLog, to_json
from slipstream.jobs.service import Service

T = TypeVar("T")

Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class JobsQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["", State] = ""
    tenant: str = ""
    type: str = ""
    limit: Limit = 100
    before: str = ""
    """The `next` of the page before."""


class JobQuery(msgspec.Struct, forbid_unknown_fields=True):
    resources: bool = True


class LogsQuery(msgspec.Struct, forbid_unknown_fields=True):
    since_offset: Natural | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    follow: bool = False


class DeadLettersQuery(Selection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True):
    select: Selection = Selection()
    all: bool = False
    """Said by who selects nothing, and means it."""
    discard: bool = False
    """In place of a replay."""
    dry_run: bool = False


class RequeueQuery(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False
    """Also where no task is known to be missing."""


class CleanupRequest(msgspec.Struct, forbid_unknown_fields=True):
    older_than_ms: Natural
    objects: bool = False
    """Also what was downloaded, and not only manifests and what the ledger knows."""
    dry_run: bool = False


class Operators:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, request: Request) -> Response:
        health = await self._service.health()
        return json_answer(health, 200 if health.status == "ok" else 503)

    async def jobs(self, request: Request) -> Response:
        asked = _query(request, JobsQuery)
        jobs = self._service.ledger.jobs(
            state=asked.state,
            tenant=asked.tenant,
            job_type=asked.type,
            limit=asked.limit,
            before=_place(asked.before) if asked.before else None,
        )
        last = jobs[-1] if len(jobs) == asked.limit else None
        following = f"{last.created_ms}.{last.job_id}" if last is not None else None
        jobs = [self._live(job) for job in jobs]
        return json_answer({"jobs": jobs, "next": following, "counts": self._service.ledger.counts()})

    async def job(self, request: Request) -> Response:
        asked = _query(request, JobQuery)
        job = self._live(self._job(request))
        answer: dict[str, Any] = msgspec.structs.asdict(job)
        if asked.resources:
            answer["resources"] = self._service.ledger.resources(job.job_id)
        return json_answer(answer)

    async def logs(self, request: Request) -> Response:
        asked = _query(request, LogsQuery)
        job = self._job(request)
        since = asked.since_offset or 0
        seen = request.headers.get("last-event-id", "")
        if asked.since_offset is None and _is_number(seen):
            since = int(seen) + 1  # a browser that was cut off goes on where it was
        events = self._events(job, since, asked)
        first = await anext(events, b"")  # so that what cannot be done at all is an answer, and no stream that breaks
        return StreamingResponse(
            _with_first(first, events),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _events(self, job: JobSnapshot, since: int, asked: LogsQuery) -> AsyncIterator[bytes]:
        async for found in self._service.log_tail.logs(job, since_offset=since, limit=asked.limit, follow=asked.follow):
            yield b": still here\n\n" if found is None else _event(*found)

    async def dead_letters(self, request: Request) -> Response:
        asked = _query(request, DeadLettersQuery)
        newest: list[tuple[int, int, Letter]] = []
        """A heap: there may be far more than anybody wants to see."""
        total = 0
        async for letter in self._service.dead_letters.find(asked):
            total += 1
            push = heapq.heappush if len(newest) < asked.limit else heapq.heappushpop
            push(newest, (letter.failed_at_ms, -total, letter))
        return json_answer({"letters": [letter for *_, letter in sorted(newest, reverse=True)], "total": total})

    async def replay(self, request: Request) -> Response:
        asked = await self._body(request, ReplayRequest)
        if asked.select == Selection() and not asked.all:
            raise msgspec.ValidationError("nothing is selected: say which in `select`, or that it is `all`")
        letters = self._service.dead_letters
        deal = letters.discard if asked.discard else letters.replay
        return json_answer(await deal(asked.select, dry_run=asked.dry_run))

    async def cancel(self, request: Request) -> Response:
        return await self._control(request, "cancelled")

    async def pause(self, request: Request) -> Response:
        return await self._control(request, "paused")

    async def resume(self, request: Request) -> Response:
        return await self._control(request, "")

    async def _control(self, request: Request, held: Held) -> Response:
        return json_answer(await self._service.control(self._job(request).job_id, held))

    async def requeue(self, request: Request) -> Response:
        asked = _query(request, RequeueQuery)
        job = self._job(request)
        tasks = await self._service.requeue(job.job_id, force=asked.force)
        return json_answer({"job_id": job.job_id, "tasks": tasks})

    def _live(self, job: JobSnapshot) -> JobSnapshot:
        """Add what only this process knows: lost tasks, and the progress of downloads under way."""
        lost = self._service.lost.jobs.get(job.job_id, 0)
        return self._service.progress.of(msgspec.structs.replace(job, lost_tasks=lost) if lost else job)

    async def cleanup(self, request: Request) -> Response:
        asked = await self._body(request, CleanupRequest)
        cleaned = await self._service.cleanup(asked.older_than_ms, objects=asked.objects, dry_run=asked.dry_run)
        return json_answer(cleaned)

    async def rebuild(self, request: Request) -> Response:
        await self._service.rebuild()
        return json_answer({"counts": self._service.ledger.counts()})

    async def _body(self, request: Request, kind: type[T]) -> T:
        """Raises msgspec.DecodeError."""
        data = await read_body(request, self._service.settings.max_manifest_bytes)
        try:
            return msgspec.json.decode(data or b"{}", type=kind)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(f"the body is no JSON that could be read: {error}") from error

    def _job(self, request: Request) -> JobSnapshot:
        job_id = request.path_params["job_id"]
        job = self._service.ledger.job(job_id)
        if job is None:
            raise HTTPException(404, f"there is no job {job_id!r:.140} in the ledger")
        return job


def _query(request: Request, kind: Any) -> Any:
    """Raises msgspec.ValidationError."""
    return msgspec.convert(dict(request.query_params), kind, strict=False)


def _place(text: str) -> tuple[int, str]:
    created_ms, _, job_id = text.partition(".")
    if not _is_number(created_ms) or not job_id:
        raise msgspec.ValidationError(f"before={text!r:.80}: give the `next` of the page before")
    return int(created_ms), job_id


def _is_number(text: str) -> bool:
    """That SQLite and every engine has room for."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _event(offset: int, log: JobLog) -> bytes:
    return f"id: {offset}\nevent: log\ndata: {to_json(log)}\n\n".encode()


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for event in rest:
        yield event
