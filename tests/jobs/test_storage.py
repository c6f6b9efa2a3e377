"""Storages: a folder and a bucket, and that what fails says so in words that keep a secret."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.jobs.config import JobConfig, StorageConfig, load_config
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.failure import Code
from slipstream.jobs.storage import ObjectMissing, Storage, StorageFailed, Storages
from tests.client.loop import in_loop
from tests.jobs.hostile_server import body, hostile_server
from tests.jobs.lab import laboratory
from tests.jobs.s3_server import BUCKET, SECRET, S3Server, denying_server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def in_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


class Watched(io.BytesIO):
    """A file that knows the largest piece it was asked for."""

    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self.largest = max(self.largest, len(piece))
        return piece


@in_loop
async def test_a_folder_keeps_what_was_put_and_forgets_what_was_deleted(tmp_path: Path) -> None:
    storages = Storages(str(tmp_path / "objects"), JobConfig())
    storage = storages.default
    try:
        await storage.put("a/b", b"one", mime="text/plain", metadata={"shop": "eu"})
        await storage.put("a/c", io.BytesIO(body(6_000_000)))
        await storage.put("a/b", b"two")
        assert await storage.get("a/b") == b"two"
        assert (tmp_path / "objects/a/c").read_bytes() == body(6_000_000)
        assert sorted([key async for key in storage.keys("a")]) == ["a/b", "a/c"]
        await storage.delete("a/b", "a/nothing")
        with pytest.raises(ObjectMissing, match="there is no a/b in"):
            await storage.get("a/b")
    finally:
        storages.close()


@pytest.mark.parametrize("how", ["environment", "options"])
@in_loop
async def test_a_bucket_keeps_content_type_and_metadata(
    how: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = StorageConfig(url=f"s3://{BUCKET}", options=s3.options)
    if how == "environment":
        config = StorageConfig(url=f"s3://{BUCKET}")
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
    storage = Storage("x", config)
    await storage.put("small", b"x", mime="text/plain", metadata={"shop": "eu"})
    large = Watched(body(20 << 20))
    await storage.put("large", large, mime="image/png", metadata={"shop": "us"})
    await storage.put("empty", io.BytesIO(b""))
    assert large.largest <= 5 << 20, "in parts"
    for key, mime, shop in (("small", "text/plain", "eu"), ("large", "image/png", "us")):
        head = s3.client.head_object(Bucket=BUCKET, Key=key)
        assert (head["ContentType"], head["Metadata"]) == (mime, {"shop": shop})
    assert hashlib.sha256(await storage.get("large")).digest() == hashlib.sha256(body(20 << 20)).digest()
    assert await storage.get("empty") == b""
    await storage.check()
    await storage.delete("small", "large", "empty", "nothing")
    assert s3.keys() == []


@in_loop
async def test_a_bucket_that_is_missing_is_said_and_is_no_missing_object(s3: S3Server) -> None:
    storage = Storage("x", StorageConfig(url="s3://nobody", options=s3.options))
    for call in (
        storage.put("a", b"x"),
        storage.put("a", io.BytesIO(bytes(6 << 20))),
        storage.get("a"),
        storage.check(),
    ):
        with pytest.raises(
            StorageFailed, match=r"s3://nobody: .*NoSuchBucket: The specified bucket does not exist"
        ) as it:
            await call
        assert not it.value.is_denied
        assert "<" not in str(it.value)
        assert SECRET not in str(it.value)


def _options(endpoint: str) -> dict[str, str | bool | int]:
    return {"endpoint": endpoint, "access_key_id": "AKIA", "secret_access_key": SECRET, "region": "us-east-1"}


@in_loop
async def test_who_is_denied_is_told_so() -> None:
    async with denying_server() as url:
        storage = Storage("x", StorageConfig(url="s3://box", options=_options(url)))
        for call in (storage.put("a", b"x"), storage.get("a"), storage.delete("a"), storage.check()):
            with pytest.raises(StorageFailed, match="AccessDenied: Access Denied") as failed:
                await call
            assert failed.value.is_denied
            assert SECRET not in str(failed.value)


@in_loop
async def test_a_server_that_is_gone_is_said_soon() -> None:
    storage = Storage("x", StorageConfig(url="s3://box", options=_options("http://127.0.0.1:1")))
    with pytest.raises(StorageFailed, match="a cannot be stored in s3://box") as failed:
        await storage.put("a", b"x")
    assert not failed.value.is_denied
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize(
    "config",
    [
        StorageConfig(url="s3://"),
        StorageConfig(url="foo://bar"),
        StorageConfig(url="s3://me:hunter2@box", options={"nonsense": "hunter2"}),
        StorageConfig(url="/proc/nowhere"),
    ],
    ids=lambda config: config.url,
)
def test_a_storage_that_cannot_be_is_refused_at_once(config: StorageConfig) -> None:
    with pytest.raises(InvalidJobs, match=r"the storage .* cannot be used") as refused:
        Storage("x", config)
    assert "hunter2" not in str(refused.value)


@in_loop
async def test_a_folder_that_is_gone_or_takes_nothing_is_not_well(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    storage = Storage("", StorageConfig(url=str(folder)), sync=False)
    await storage.check()
    assert list(folder.iterdir()) == [], "to look leaves nothing"
    folder.rmdir()
    with pytest.raises(StorageFailed, match="nothing can be stored"):
        await storage.check()
    folder.write_text("no folder any more")
    with pytest.raises(StorageFailed, match="nothing can be stored"):
        await storage.check()
    with pytest.raises(StorageFailed, match="a/b cannot be stored"):
        await storage.put("a/b", b"x")


@in_loop
async def test_metadata_that_a_store_panics_at_is_a_failure_like_any(s3: S3Server) -> None:
    storage = Storage("x", StorageConfig(url=f"s3://{BUCKET}", options=s3.options))
    with pytest.raises(StorageFailed):
        await storage.put("a", b"x", metadata={"a b": "c\nd"})
    await storage.put("a", b"x", mime="no\nmime")
    await storage.delete("a")


@pytest.mark.usefixtures("in_environment")
@in_loop
async def test_a_whole_job_goes_to_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    config = tmp_path / "jobs.toml"
    config.write_text('[types.crawl]\nmetadata = { shop = "eu" }\n')
    async with (
        hostile_server() as server,
        laboratory(tmp_path, storage=f"s3://{BUCKET}", config=str(config), spool_memory_bytes=1000) as lab,
    ):
        job_id = await lab.submit({"small": server.url("/ok/100"), "large": server.url("/ok/7000000")})
        job = await lab.ended(job_id)
        assert (job.state, job.resources_completed) == ("completed", 2)
        assert s3.keys() == [
            f"manifests/crawl/{job_id}/metadata.json",
            f"resources/crawl/{job_id}/large",
            f"resources/crawl/{job_id}/small",
        ]
        found = s3.client.get_object(Bucket=BUCKET, Key=lab.resources(job_id)["large"].key)
        assert hashlib.sha256(found["Body"].read()).hexdigest() == lab.resources(job_id)["large"].sha256
        assert (found["ContentType"], found["Metadata"]) == ("application/octet-stream", {"shop": "eu"})
        assert (await lab.service.health()).status == "ok"
        cleaned = await lab.service.cleanup(0, objects=True)
        assert (cleaned.jobs, cleaned.objects) == (1, 3)
        assert s3.keys() == []


@in_loop
async def test_what_a_storage_refuses_is_an_upload_that_failed_with_tries_of_its_own(
    s3: S3Server, tmp_path: Path
) -> None:
    async with hostile_server() as server, denying_server() as denying:
        lines = []
        for name, url, endpoint in (
            ("gone", "box", "http://127.0.0.1:1"),
            ("missing", "nobody", s3.url),
            ("denied", "box", denying),
        ):
            options = f'endpoint = "{endpoint}", access_key_id = "A", secret_access_key = "{SECRET}", region = "r"'
            lines += [
                f'[storages.{name}]\nurl = "s3://{url}"\noptions = {{ {options} }}',
                f'[types.{name}]\nstorage = "{name}"',
            ]
        config = tmp_path / "jobs.toml"
        config.write_text("\n".join(lines))
        load_config(str(config), {})
        async with laboratory(tmp_path, config=str(config), upload_attempts=2) as lab:
            for name, code, attempts in (
                ("gone", Code.UPLOAD_FAILED, 2),
                ("missing", Code.UPLOAD_FAILED, 2),
                ("denied", Code.UPLOAD_DENIED, 1),
            ):
                job_id = await lab.submit({"a": server.url(f"/ok/10?{name}")}, name)
                assert (await lab.ended(job_id)).state == "failed"
                assert lab.resources(job_id)["a"].error_code == code
                retries = [log for log in await lab.logs(job_id) if log.fields["step"] == "retry"]
                assert len(retries) == attempts - 1
                assert not [log for log in await lab.logs(job_id) if SECRET in str(log)]
            assert server.paths["/ok/10"] == 3, "each was downloaded once"
