"""POST /jobs over a socket: what is answered, and that nothing which comes in is a mistake of ours."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.bus import Bus, BusUnavailable
from slipstream.jobs.server import listening
from slipstream.jobs.storage import Storage, StorageFailed
from tests.client.loop import in_loop
from tests.jobs.lab import Lab, laboratory, manifest

GOOD = manifest({"a": "http://example.invalid/a", "b": "http://example.invalid/b"})
TYPE = {"X-Fetchbox-Job-Type": "crawl"}


class Site:
    def __init__(self, lab: Lab, url: str, session: aiohttp.ClientSession) -> None:
        self.lab = lab
        self.url = url
        self._session = session

    async def post(self, data: bytes = GOOD, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
        async with self._session.post(
            f"{self.url}/jobs", data=data, headers=TYPE if headers is None else headers
        ) as it:
            return it.status, json.loads(await it.read()), it.headers


@contextlib.asynccontextmanager
async def site(folder: Path, **given: Any) -> AsyncIterator[Site]:
    async with (
        laboratory(folder, worker=False, port=0, **given) as lab,
        listening(lab.service) as url,
        aiohttp.ClientSession() as session,
    ):
        yield Site(lab, url, session)


def _check_error(answer: tuple[int, Any, Any], status: int, code: str) -> str:
    assert answer[0] == status
    assert set(answer[1]) == {"error"}
    assert set(answer[1]["error"]) == {"code", "message", "job_id"}
    assert answer[1]["error"]["code"] == code
    message: str = answer[1]["error"]["message"]
    assert message
    return message


@in_loop
async def test_a_job_is_accepted_with_its_id_where_its_manifest_is_and_its_count(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        headers = {**TYPE, "X-Fetchbox-Tenant": "shop", "X-Fetchbox-Idempotency-Key": "k"}
        headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        status, answer, _ = await it.post(headers=headers)
        assert status == 202
        assert set(answer) == {"job_id", "manifest_key", "resource_count"}
        assert uuid.UUID(answer["job_id"]).version == 7
        assert answer["manifest_key"] == f"manifests/crawl/{answer['job_id']}/metadata.json"
        assert answer["resource_count"] == 2
        assert json.loads(it.lab.object(answer["manifest_key"]))["resources"][0]["id"] == "a"
        tasks = await it.lab.tasks()
        assert [(task.resource_id, task.tenant, task.job_type) for task in tasks] == [
            ("a", "shop", "crawl"),
            ("b", "shop", "crawl"),
        ]
        assert {task.trace_id for task in tasks} == {"0af7651916cd43dd8448eb211c80319c"}
        assert (await it.post(gzip.compress(GOOD), {**headers, "Content-Encoding": "gzip"}))[1] == answer
        answers = await asyncio.gather(*(it.post(headers=headers) for _ in range(5)))
        assert [each[:2] for each in answers] == [(202, answer)] * 5


@in_loop
async def test_what_is_not_taken_is_said_with_a_code(tmp_path: Path) -> None:
    config = tmp_path / "jobs.toml"
    config.write_text("[types.crawl]\n")
    async with site(tmp_path, config=str(config), max_manifest_bytes=1000, max_resources=2) as it:
        assert "X-Fetchbox-Job-Type" in _check_error(await it.post(headers={}), 400, "INVALID_PAYLOAD")
        three = manifest(dict.fromkeys("abc", "http://example.invalid/"))
        assert "send 1 to 2" in _check_error(await it.post(three), 400, "INVALID_PAYLOAD")
        unknown = await it.post(headers={"X-Fetchbox-Job-Type": "photos"})
        assert "there are: crawl" in _check_error(unknown, 403, "UNSUPPORTED_JOB_TYPE")
        _check_error(await it.post(b" " * 1001), 413, "PAYLOAD_TOO_LARGE")
        bomb = gzip.compress(bytes(10_000_000))
        for data in (bomb[:1000], bomb):
            _check_error(await it.post(data, {**TYPE, "Content-Encoding": "gzip"}), 413, "PAYLOAD_TOO_LARGE")
        _check_error(await it.post(headers={**TYPE, "X-Fetchbox-Tenant": "x" * 129}), 400, "INVALID_PAYLOAD")
        _check_error(await it.post(headers={**TYPE, "X-Fetchbox-Idempotency-Key": "x" * 257}), 400, "INVALID_PAYLOAD")
        assert it.lab.service.ledger.jobs() == []


@in_loop
async def test_a_tenant_that_sends_too_much_is_told_when_to_come_again(tmp_path: Path) -> None:
    async with site(tmp_path, rate_per_s=0.001, rate_burst=1) as it:
        assert (await it.post())[0] == 202
        answer = await it.post()
        _check_error(answer, 429, "RATE_LIMITED")
        assert int(answer[2]["Retry-After"]) >= 1
        assert (await it.post(headers={**TYPE, "X-Fetchbox-Tenant": "another"}))[0] == 202


@in_loop
async def test_a_storage_that_is_away_is_502_and_a_bus_that_is_503(tmp_path: Path) -> None:
    async def fail(*args: Any, **kwargs: Any) -> None:
        raise StorageFailed("the disk is full")

    async def away(*args: Any, **kwargs: Any) -> None:
        raise BusUnavailable("nobody there")

    async with site(tmp_path) as it:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Storage, "put", fail)
            assert "the disk is full" in _check_error(await it.post(), 502, "STORAGE_FAILED")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Bus, "publish_all", away)
            answer = await it.post()
            assert "nobody there" in _check_error(answer, 503, "PUBLISH_FAILED")
            assert it.lab.service.ledger.job(answer[1]["error"]["job_id"]) is not None
            assert answer[2]["Retry-After"]


BODIES = st.one_of(
    st.binary(max_size=100),
    st.binary(max_size=100).map(gzip.compress),
    st.sampled_from(
        [b"", b"[" * 200_000, b'{"manifest_version":"v1","metadata":' + b'{"a":' * 100_000, b"null", b"\xff"]
    ),
    st.dictionaries(
        st.sampled_from(["manifest_version", "resources", "x"]), st.none() | st.text() | st.lists(st.text())
    ).map(lambda value: json.dumps(value).encode()),
)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=300)


def test_nothing_that_comes_in_is_a_mistake_of_ours(tmp_path: Path) -> None:
    """What a client library would not send is sent as it is, on a socket."""

    @settings(max_examples=4, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(BODIES, VALUES, VALUES, VALUES, st.booleans()), min_size=25, max_size=25))
    def try_out(requests: list[tuple[bytes, str, str, str, bool]]) -> None:
        asyncio.run(send(requests))

    async def send(requests: list[tuple[bytes, str, str, str, bool]]) -> None:
        async with laboratory(tmp_path, worker=False, port=0, ledger=":memory:") as lab, listening(lab.service) as url:
            host, port = url.removeprefix("http://").split(":")
            for body, job_type, tenant, key, is_gzip in requests:
                reader, writer = await asyncio.open_connection(host, int(port))
                lines = [f"X-Fetchbox-Job-Type: {job_type or 'crawl'}", f"X-Fetchbox-Tenant: {tenant}"]
                lines += [f"X-Fetchbox-Idempotency-Key: {key}", f"traceparent: {key}", f"Content-Length: {len(body)}"]
                lines += ["Content-Encoding: gzip"] if is_gzip else []
                head = "\r\n".join(["POST /jobs HTTP/1.1", "Host: a", "Connection: close", *lines, "", ""])
                writer.write(head.encode("latin-1") + body)
                status = int((await reader.readline()).split()[1])
                assert status in {400, 403, 413}
                writer.close()

    try_out()
