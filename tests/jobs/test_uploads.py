"""Multipart uploads that were never completed, in a bucket behind a real socket."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from botocore.auth import S3SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from slipstream.jobs import service
from slipstream.jobs.config import JobConfig
from slipstream.jobs.storage import Storages
from slipstream.jobs.uploads import Bucket, UploadsUnavailable, abort_uploads, bucket_of, signed
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory
from tests.jobs.s3_server import BUCKET, SECRET, S3Server, denying_server, s3_server

LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def begun(s3: S3Server, *keys: str) -> None:
    for key in keys:
        upload = s3.client.create_multipart_upload(Bucket=BUCKET, Key=key)
        s3.client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload["UploadId"], PartNumber=1, Body=b"part")


def left(s3: S3Server) -> list[str]:
    """Return the keys of the uploads that are there, and abort them for the next test."""
    found = s3.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    for each in found:
        s3.client.abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
    return sorted(each["Key"] for each in found)


@in_loop
async def test_the_service_aborts_old_uploads_of_its_own_jobs_and_no_others(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "jobs.toml"
    config.write_text('[types.crawl]\n[types.album]\nkey_prefix = "shared/album"\n')
    caplog.set_level(logging.INFO, service.__name__)
    async with (
        hostile_server() as server,
        laboratory(tmp_path, storage=f"s3://{BUCKET}", config=str(config)) as lab,
    ):
        job_id = await lab.submit({"a": server.url("/ok/10")})
        await lab.ended(job_id)
        ours = [f"resources/crawl/{job_id}/a b+~'", "resources/shared/album/a"]
        others = ["resources/crawl/another/a", "resources/shared/album/deep/a", f"backup/{job_id}/a", "resources/a"]
        begun(s3, *ours, *others)
        with monkeypatch.context() as patched:
            patched.setattr(service, "UPLOAD_KEPT_S", 90 * 365 * 24 * 3600.0)  # the uploads of moto are of 2010
            await lab.service.abort_uploads()
        assert not caplog.text, "a worker may still be at an upload that is younger than the bound"
        await lab.service.abort_uploads()
        assert left(s3) == sorted(others)
        assert f"2 uploads to s3://{BUCKET} that were never completed were aborted" in caplog.text
        stored = [f"manifests/crawl/{job_id}/metadata.json", f"resources/crawl/{job_id}/a"]
        assert s3.keys() == stored
        for key in stored:
            s3.client.delete_object(Bucket=BUCKET, Key=key)  # moto keeps its buckets for all tests of a process


@in_loop
async def test_all_pages_are_read_and_what_is_gone_meanwhile_is_no_failure() -> None:
    """moto lists all uploads on one page, so this bucket is one of ours."""
    pages = {
        "": _page(["resources/a", "resources/b", "elsewhere/c"], following="elsewhere/c"),
        "elsewhere/c": _page(["resources/d"]),
    }
    deleted: list[tuple[str, str]] = []

    async def listed(request: web.Request) -> web.Response:
        return web.Response(text=pages[request.query.get("key-marker", "")], content_type="application/xml")

    async def abort(request: web.Request) -> web.Response:
        deleted.append((request.path, request.query["uploadId"]))
        return web.Response(status=404 if request.path.endswith("/b") else 204)

    app = web.Application()
    app.add_routes([web.get("/box", listed), web.delete("/box/{key:.*}", abort)])
    async with TestServer(app) as server:
        there = str(server.make_url("/box"))
        bucket = Bucket(url=there, region="r", access_key_id="a", secret_access_key="b")
        assert await abort_uploads(bucket, "resources/", LATER) == 3
    assert deleted == [(f"/box/resources/{name}", f"id of resources/{name}") for name in "abd"]


def _page(keys: list[str], following: str = "") -> str:
    uploads = "".join(
        f"<Upload><Key>{key}</Key><UploadId>id of {key}</UploadId>"
        "<Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>"
        for key in keys
    )
    more = f"<IsTruncated>true</IsTruncated><NextKeyMarker>{following}</NextKeyMarker>" if following else ""
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListMultipartUploadsResult xmlns="{space}">{more}{uploads}</ListMultipartUploadsResult>'


@in_loop
async def test_a_bucket_that_refuses_is_reported() -> None:
    async with denying_server() as url:
        with pytest.raises(UploadsUnavailable, match=r"(?s)GET answered 403 .*AccessDenied"):
            await abort_uploads(Bucket(url=url, region="r", access_key_id="a", secret_access_key="b"), "", LATER)
    nowhere = Bucket(url="http://127.0.0.1:1/box", region="r", access_key_id="a", secret_access_key="b")
    with pytest.raises(UploadsUnavailable, match=r"cannot be aborted: ClientConnector"):
        await abort_uploads(nowhere, "", LATER)


@in_loop
async def test_a_folder_has_no_such_uploads(tmp_path: Path) -> None:
    storages = Storages(str(tmp_path), JobConfig())
    try:
        assert await storages.default.abort_uploads("resources/", LATER, lambda key: True) is None
    finally:
        storages.close()


@pytest.mark.parametrize("token", ["", "session+/="])
@pytest.mark.parametrize(
    ("method", "key", "query"),
    [("GET", "", {"uploads": "", "prefix": "a b/"}), ("DELETE", "a b+~'/ü", {"uploadId": "x/=+"})],
)
def test_requests_are_signed_as_botocore_signs_them(method: str, key: str, query: dict[str, str], token: str) -> None:
    there = "https://s3.eu-west-1.amazonaws.com/box"
    bucket = Bucket(url=there, region="eu-west-1", access_key_id="AKIA", secret_access_key=SECRET, token=token)
    url, headers = signed(bucket, method, key, query, dt.datetime.now(dt.UTC))
    request = AWSRequest(
        method, url, headers={"host": urlsplit(url).netloc, "x-amz-content-sha256": headers["x-amz-content-sha256"]}
    )
    signer = S3SigV4Auth(Credentials("AKIA", SECRET, token or None), "s3", "eu-west-1")
    request.context["timestamp"] = headers["x-amz-date"]
    if token:
        request.headers["x-amz-security-token"] = token
    request.headers["x-amz-date"] = headers["x-amz-date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signature = signer.signature(text, request)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_credentials_come_from_one_source_and_none_are_no_bucket() -> None:
    known = {
        "AWS_ACCESS_KEY_ID": "E",
        "AWS_SECRET_ACCESS_KEY": "e",
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "eu-west-1",
    }
    assert bucket_of({"bucket": "box"}, {}) is None
    assert bucket_of({"bucket": "box", "skip_signature": "true"}, known) is None
    assert bucket_of({"bucket": "box", "access_key_id": "C"}, known) is None
    found = bucket_of({"bucket": "box"}, known)
    there = "https://s3.eu-west-1.amazonaws.com/box"
    assert found == Bucket(url=there, region="eu-west-1", access_key_id="E", secret_access_key="e", token="t")
    given = {"bucket": "box", "access_key_id": "C", "secret_access_key": "c", "endpoint": "https://box.minio:9/"}
    found = bucket_of({**given, "virtual_hosted_style_request": "true"}, known)
    assert found is not None
    assert (found.url, found.access_key_id, found.token) == ("https://box.minio:9", "C", "")
