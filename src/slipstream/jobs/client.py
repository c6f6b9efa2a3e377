"""A client of the service: submits jobs, and asks what became of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from slipstream.bus.attributes import traceparent_here
from slipstream.jobs.dead_letters import Dealt, Letter, Selection
from slipstream.jobs.errors import JobsError
from slipstream.jobs.ingress import Accepted
from slipstream.jobs.ledger import JobSnapshot, ResourceSnapshot
from slipstream.jobs.messages import JobLog, from_json
from slipstream.jobs.service import Cleaned, Health

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8090"
ANSWER_S = 10.0
"""How long the service may be silent after a question about jobs or its health, in seconds; as long as the broker."""
WORK_S = 120.0
"""How long it may be silent after all other requests, in seconds: they wait for the bus, the storage or a whole log."""
STRANGER = "UNKNOWN"
"""The code of an answer that is not from a service of jobs."""
COMPRESS_BYTES = 64 * 1024
"""A manifest from this size on is sent as gzip."""


class ServiceError(JobsError):
    """The service refused, or cannot."""

    def __init__(self, status: int, code: str, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.job_id = job_id


class ServiceUnreachable(JobsError):
    """Nobody answers there."""


class JobPage(msgspec.Struct):
    jobs: list[JobSnapshot]
    counts: dict[str, int]
    next: str | None = None


class JobDetails(JobSnapshot, kw_only=True, frozen=True):
    resources: list[ResourceSnapshot] = msgspec.field(default_factory=list)


class Requeued(msgspec.Struct, frozen=True):
    """The tasks of a job that were published again."""

    job_id: str
    tasks: int


class LetterPage(msgspec.Struct):
    letters: list[Letter]
    total: int


class JobsClient:
    """
    Example:
        async with JobsClient("http://127.0.0.1:8090") as jobs:
            accepted = await jobs.submit("photos", {"manifest_version": "v1", "resources": […]})
    """

    def __init__(self, url: str = DEFAULT_URL, token: str = "") -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> JobsClient:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def submit(
        self,
        job_type: str,
        manifest: Mapping[str, Any] | bytes,
        *,
        idempotency_key: str = "",
        tenant: str = "",
    ) -> Accepted:
        """Raises ServiceError, ServiceUnreachable. With an idempotency key it may be repeated until it succeeds."""
        data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        headers = {"x-fetchbox-job-type": job_type, "content-type": "application/json"}
        if idempotency_key:
            headers["x-fetchbox-idempotency-key"] = idempotency_key
        if tenant:
            headers["x-fetchbox-tenant"] = tenant
        if len(data) >= COMPRESS_BYTES:
            data, headers["content-encoding"] = gzip.compress(data, 5), "gzip"
        return await self._call("POST", "/jobs", Accepted, data=data, headers=headers)

    async def jobs(
        self, *, state: str = "", tenant: str = "", job_type: str = "", limit: int = 100, before: str = ""
    ) -> JobPage:
        query = {"state": state, "tenant": tenant, "type": job_type, "limit": str(limit), "before": before}
        return await self._call("GET", "/operators/jobs", JobPage, query, answer_s=ANSWER_S)

    async def job(self, job_id: str, *, resources: bool = True) -> JobDetails:
        query = {"resources": "true" if resources else "false"}
        path = f"/operators/jobs/{quote(job_id, safe='')}"
        return await self._call("GET", path, JobDetails, query, answer_s=ANSWER_S)

    async def logs(
        self, job_id: str, *, since_offset: int | None = None, limit: int | None = None, follow: bool = False
    ) -> AsyncIterator[tuple[int, JobLog]]:
        """With their offsets; `follow` goes on until the job has ended."""
        given = {"since_offset": since_offset, "limit": limit, "follow": "true" if follow else None}
        query = {name: str(value) for name, value in given.items() if value is not None}
        offset = -1
        async with self._request("GET", f"/operators/jobs/{quote(job_id, safe='')}/logs", query) as response:
            async for line in _lines(response):
                name, _, value = line.decode().partition(": ")
                if name == "id":
                    offset = int(value)
                elif name == "data":
                    yield offset, from_json(JobLog, value)

    async def dead_letters(self, selection: Selection, limit: int = 100) -> LetterPage:
        fields = msgspec.structs.asdict(selection)
        query = {name: str(value) for name, value in fields.items() if value} | {"limit": str(limit)}
        if selection.dealt_with:
            query["dealt_with"] = "true"
        return await self._call("GET", "/operators/dlq", LetterPage, query)

    async def replay(
        self, selection: Selection, *, everything: bool = False, discard: bool = False, dry_run: bool = False
    ) -> Dealt:
        """A selection of nothing in particular is refused, unless `everything` is meant."""
        asked = {"select": selection, "all": everything, "discard": discard, "dry_run": dry_run}
        data = msgspec.json.encode(asked)
        return await self._call("POST", "/operators/replay", Dealt, data=data)

    async def cleanup(self, older_than_ms: int, *, objects: bool = False, dry_run: bool = False) -> Cleaned:
        data = msgspec.json.encode({"older_than_ms": older_than_ms, "objects": objects, "dry_run": dry_run})
        return await self._call("POST", "/operators/cleanup", Cleaned, data=data)

    async def cancel(self, job_id: str) -> JobSnapshot:
        """End a job: what is not done is not downloaded. Raises ServiceError, ServiceUnreachable."""
        return await self._control(job_id, "cancel")

    async def pause(self, job_id: str) -> JobSnapshot:
        """Begin no more downloads of a job. Raises ServiceError, ServiceUnreachable."""
        return await self._control(job_id, "pause")

    async def resume(self, job_id: str) -> JobSnapshot:
        return await self._control(job_id, "resume")

    async def _control(self, job_id: str, action: str) -> JobSnapshot:
        return await self._call("POST", f"/operators/jobs/{quote(job_id, safe='')}/{action}", JobSnapshot)

    async def requeue(self, job_id: str, *, force: bool = False) -> Requeued:
        """Publish the tasks again that a job lacks; `force`: also where none is known to be missing. Raises
        ServiceError, ServiceUnreachable."""
        query = {"force": "true"} if force else {}
        return await self._call("POST", f"/operators/jobs/{quote(job_id, safe='')}/requeue", Requeued, query)

    async def rebuild(self) -> None:
        await self._call("POST", "/operators/rebuild", dict)

    async def health(self) -> Health:
        """Also where something is down."""
        return await self._call("GET", "/operators/health", Health, statuses=(200, 503), answer_s=ANSWER_S)

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        query: Mapping[str, str] | None = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        statuses: tuple[int, ...] = (200, 202),
        answer_s: float = WORK_S,
    ) -> T:
        wanted = {name: value for name, value in (query or {}).items() if value}
        async with self._request(
            method, path, wanted, data=data, headers=headers, statuses=statuses, answer_s=answer_s
        ) as response:
            try:
                return msgspec.json.decode(await response.read(), type=kind)
            except msgspec.DecodeError as error:
                raise _stranger(response.status, self.url) from error

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        statuses: tuple[int, ...] = (200, 202),
        answer_s: float = WORK_S,
    ) -> _Exchange:
        assert self._session is not None, "use it as `async with JobsClient(…) as jobs`"
        if method == "POST" and (traceparent := traceparent_here()):
            headers = {**(headers or {}), "traceparent": traceparent}
        request = self._session.request(
            method, self.url + path, params=dict(query), data=data, headers=headers, timeout=_limit(answer_s)
        )
        return _Exchange(request, self.url, statuses)


def _limit(silence_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=10, sock_read=silence_s)


class _Exchange:
    """A request and its answer, with what goes wrong as errors of ours."""

    def __init__(self, request: Any, url: str, statuses: tuple[int, ...]) -> None:
        self._request = request
        self._url = url
        self._statuses = statuses

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            response: aiohttp.ClientResponse = await self._request.__aenter__()
        except aiohttp.SocketTimeoutError as error:
            raise ServiceUnreachable(
                f"the service at {self._url} takes connections and does not answer: {error}; look at its log, or set "
                "JOBS_URL if it is another server"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ServiceUnreachable(
                f"no service answers at {self._url} ({error}): start one with `slipstream jobs run`, or set JOBS_URL"
            ) from error
        if response.status not in self._statuses:
            try:
                raise _refusal(response.status, await response.read(), self._url)
            finally:
                await self._request.__aexit__(None, None, None)
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._request.__aexit__(kind, error, trace)
        if isinstance(error, aiohttp.ClientError):
            raise ServiceUnreachable(f"the service at {self._url} broke off: {error}") from error


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """However long they are: aiohttp's own end at half a megabyte, and a log may be as long as the bus has it."""
    pieces: list[bytes] = []
    async for chunk in response.content.iter_any():
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        for piece in rest:
            yield b"".join(pieces)
            pieces = [piece]


def _refusal(status: int, body: bytes, url: str) -> ServiceError:
    try:
        error = json.loads(body)["error"]
        return ServiceError(status, error["code"], error["message"], error.get("job_id") or "")
    except (ValueError, KeyError, TypeError):
        return _stranger(status, url)


def _stranger(status: int, url: str) -> ServiceError:
    return ServiceError(status, STRANGER, f"{url} answered {status}, and is no service of jobs: set JOBS_URL")
