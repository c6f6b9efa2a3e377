"""Download jobs: what their service tells operators, asked with its token, which stays here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import quote

from msgspec.structs import replace
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from slipstream.api.overview import SearchHit
from slipstream.console.answers import Refused
from slipstream.console.forward import Forwarder
from slipstream.console.problems import JobsSeen, Seen
from slipstream.console.sources import Noun
from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable
from slipstream.jobs.dead_letters import Selection

LOOKED_AT = 200
HITS = 10
ACTIONS = frozenset({"cancel", "pause", "resume", "requeue"})
"""What can be done with a job: the last part of the path of a POST."""


class Jobs(Noun):
    what = "jobs"
    link = "#/jobs"

    def __init__(self, url: str, token: str, *, is_expected: Callable[[], bool], timeout_ms: int = 90_000) -> None:
        self._url = url
        self._token = token
        self._is_expected = is_expected
        """Returns whether it is a problem if the service does not answer."""
        own = {"authorization": f"Bearer {token}"} if token else {}
        self._forwarder = Forwarder(
            url,
            what="the service of jobs",
            start="slipstream jobs serve",
            timeout_ms=timeout_ms,
            headers=own,
            reword=_in_our_words,
        )

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/jobs", _To(self._forwarder, "/operators/jobs", "GET")),
            Route("/v2/jobs/{job:path}", _Job(self._forwarder)),
            Route("/v2/job-dead-letters", _To(self._forwarder, "/operators/dlq", "GET")),
            Route("/v2/job-replays", _To(self._forwarder, "/operators/replay", "POST")),
        ]

    async def look(self, seen: Seen) -> Seen:
        try:
            async with JobsClient(self._url, self._token) as client:
                page = await client.dead_letters(Selection(), limit=LOOKED_AT)
        except ServiceUnreachable as error:
            if not await asyncio.to_thread(self._is_expected):
                return seen
            raise Refused("UNAVAILABLE", str(error)) from error
        except ServiceError as error:
            raise Refused("UNAVAILABLE", str(error)) from error
        if not page.letters:
            return seen
        newest = max(page.letters, key=lambda letter: letter.failed_at_ms)
        found = JobsSeen(
            dead_letters=page.total,
            newest_id=newest.job_id,
            newest_reason=newest.message or newest.code,
            newest_ms=newest.failed_at_ms,
        )
        return replace(seen, jobs=found)

    async def search(self, text: str) -> list[SearchHit]:
        try:
            async with JobsClient(self._url, self._token) as client:
                try:
                    found = [(await client.job(text, resources=False)).job_id]
                except ServiceError as error:
                    if error.status != 404:
                        raise
                    found = [job.job_id for job in (await client.jobs(limit=LOOKED_AT)).jobs if text in job.job_id]
        except (ServiceError, ServiceUnreachable) as error:
            raise Refused("UNAVAILABLE", str(error)) from error
        return [SearchHit(kind="job", text=each, link=f"#/jobs/{quote(each, safe='')}") for each in found[:HITS]]

    def stop(self) -> None:
        self._forwarder.stop()

    async def close(self) -> None:
        await self._forwarder.close()


class _To:
    """A call that is another's there."""

    def __init__(self, forwarder: Forwarder, path: str, method: str) -> None:
        self._forwarder = forwarder
        self._path = path.encode()
        self._methods = {method, "HEAD"} if method == "GET" else {method}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _check_method(scope, self._methods)
        await self._forwarder.forward(scope, receive, send, self._path)


class _Job:
    """`/v2/jobs/…`: one job, its logs, or an action on it; its id as it came, with whatever is in it."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_action = scope["path"].rpartition("/")[2] in ACTIONS
        _check_method(scope, {"POST"} if is_action else {"GET", "HEAD"})
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        await self._forwarder.forward(scope, receive, send, b"/operators/jobs" + raw.removeprefix(b"/v2/jobs"))


def _check_method(scope: Scope, methods: set[str]) -> None:
    if scope["method"] not in methods:
        raise Refused("METHOD_NOT_ALLOWED", f"use {', '.join(sorted(methods))} on {scope['path']}")


def _in_our_words(status: int, body: bytes) -> tuple[str, str] | None:
    """The service says `{"error": {"code", "message"}}`."""
    try:
        error = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return None
    if status == 401:
        return code, "the service of jobs asks for a token: give it to the console as JOBS_TOKEN"
    return code, message
