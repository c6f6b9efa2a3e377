"""A worker: waits elsewhere, stores what it has without asking for it again, and buries what nobody can do."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.bus import Bus, InvalidArgument
from slipstream.jobs import task_runner
from slipstream.jobs.dead_letters import Selection
from slipstream.jobs.failure import Code
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, ProxyHint, StorageHint, encode
from slipstream.jobs.storage import Storage, StorageFailed
from tests.client.loop import in_loop
from tests.jobs.forward_proxy import forward_proxy
from tests.jobs.hostile_server import body, hostile_server
from tests.jobs.lab import Lab, laboratory

TASKS = "fetchbox.jobs.tasks"


def _task(url: str = "http://127.0.0.1:1/", resource_id: str = "a", **fields: Any) -> DownloadTask:
    return DownloadTask(job_id="j", resource_id=resource_id, url=url, **fields)


async def _letter(lab: Lab, task: DownloadTask) -> DeadLetterTask:
    """That of a task which a direct producer has published."""
    await lab.service.bus.publish(TASKS, encode(task), key="j")
    letters = await lab.buried(1)
    await lab.until(lambda: [each.state for each in lab.resources("j").values()] == ["failed"])
    return letters[0]


@in_loop
async def test_a_task_that_has_to_wait_for_long_is_given_back_and_done_later(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, hold_ms=100) as lab:
        job_id = await lab.submit({"a": server.url("/retry-after/1/a")})
        job = await lab.ended(job_id)
        assert job.state == "completed"
        steps = [log.fields["step"] for log in await lab.logs(job_id)]
        assert steps == ["started", "retry", "started", "downloaded", "stored"], "it was delivered twice"
        resource = lab.resources(job_id)["a"]
        assert resource.attempts == 1, "a host that asks to wait does not use up an attempt"


@in_loop
async def test_attempts_count_on_though_the_task_is_given_back_in_between(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, hold_ms=1, max_attempts=2, host_patience_ms=0) as lab:
        job_id = await lab.submit({"a": server.url("/retry-after/1/b?times=9")})
        job = await lab.ended(job_id)
        assert job.state == "failed"
        resource = lab.resources(job_id)["a"]
        assert (resource.error_code, resource.attempts) == ("DOWNLOAD_HTTP_STATUS", 2)


@in_loop
async def test_a_password_in_a_url_is_in_no_log(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        job_id = await lab.submit({"a": server.url("/ok/10").replace("://", "://ada:secret@")})
        await lab.ended(job_id)
        assert server.requests[-1].headers["authorization"]
        assert not [log for log in await lab.logs(job_id) if "secret" in str(log)]


@in_loop
async def test_an_upload_that_fails_is_tried_again_without_another_download(tmp_path: Path) -> None:
    puts = 0
    original = Storage.put

    async def put(self: Storage, key: str, *args: Any, **kwargs: Any) -> None:
        nonlocal puts
        if key.startswith("resources/"):
            puts += 1
            if puts < 3:
                raise StorageFailed("not now")
        await original(self, key, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "put", put)
        async with hostile_server() as server, laboratory(tmp_path) as lab:
            job_id = await lab.submit({"a": server.url("/ok/3000000")})
            assert (await lab.ended(job_id)).state == "completed"
            assert (puts, server.paths["/ok/3000000"]) == (3, 1)
            assert lab.object(lab.resources(job_id)["a"].key) == body(3_000_000)
            steps = [log.fields["step"] for log in await lab.logs(job_id)]
            assert steps == ["started", "downloaded", "retry", "retry", "stored"]


@in_loop
async def test_a_task_that_was_handed_out_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, hold_ms=1, max_deliveries=2, retry_base_ms=5) as lab:
        job_id = await lab.submit({"a": server.url("/status/503")})
        assert (await lab.ended(job_id)).last_error_code == Code.SYSTEM_EXHAUSTED
        assert server.paths["/status/503"] == 2
        assert "delivered 2 times" in (await lab.letters())[0].failure_message


MALFORMED = {
    "garbage": (b"\xff\xff\xff garbage", ""),
    "nothing": (b"", ""),
    "no url": (encode(DownloadTask(job_id="j", resource_id="a", tenant="shop")), "a"),
    "no resource": (encode(DownloadTask(job_id="j", url="http://a/")), ""),
    "a long id": (encode(_task(resource_id="x" * 129)), "x" * 128),
}


@pytest.mark.parametrize("name", MALFORMED)
@in_loop
async def test_a_task_that_makes_no_sense_is_a_dead_letter_with_its_bytes(name: str, tmp_path: Path) -> None:
    data, resource_id = MALFORMED[name]
    async with laboratory(tmp_path) as lab:
        await lab.service.bus.publish(TASKS, data, key="j")
        letter = (await lab.buried(1))[0]
        assert letter.failure_code == Code.SYSTEM_MALFORMED_TASK
        assert letter.failure_message
        assert letter.task.attributes.extra == data
        assert (letter.task.job_id, letter.task.resource_id) == ("j", resource_id)
        if resource_id:  # so that a job of which it is known that it belongs to it comes to an end
            await lab.until(lambda: resource_id in lab.resources("j"))
            assert lab.resources("j")[resource_id].error_code == Code.SYSTEM_MALFORMED_TASK
        replayed = await lab.service.dead_letters.replay(Selection())
        assert (replayed.letters, replayed.skipped) == ([], 1), "nobody could do it the second time, either"


CANNOT = {
    "an unknown storage": (_task(storage_hint=StorageHint(bucket="nowhere")), Code.STORAGE_UNKNOWN_BUCKET),
    "an unknown pool": (_task(proxy_hint=ProxyHint(primary_pool="mars")), Code.HANDLER_UNKNOWN_PROXY_POOL),
    "an unknown fallback": (_task(proxy_hint=ProxyHint(fallbacks=["mars"])), Code.HANDLER_UNKNOWN_PROXY_POOL),
    "a bad prefix": (_task(storage_hint=StorageHint(key_prefix="../up")), Code.STORAGE_INVALID_KEY),
    "bad metadata": (_task(storage_hint=StorageHint(metadata={"a b": "c"})), Code.STORAGE_INVALID_METADATA),
    "an unknown type": (_task(job_type="../up"), Code.HANDLER_UNKNOWN_TYPE),
    "a url of something else": (_task("ftp://a/"), Code.DOWNLOAD_INVALID_URL),
}


@pytest.mark.parametrize("name", CANNOT)
@in_loop
async def test_a_task_that_cannot_be_done_is_a_dead_letter(name: str, tmp_path: Path) -> None:
    task, code = CANNOT[name]
    async with laboratory(tmp_path) as lab:
        letter = await _letter(lab, task)
        assert letter.failure_code == code
        assert letter.task.url == task.url
        assert lab.objects() == []


@in_loop
async def test_a_task_that_says_it_was_tried_four_billion_times_can_be_buried(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        letter = await _letter(lab, _task(server.url("/status/404"), attempt=2**32 - 1))
        assert letter.failure_code == Code.DOWNLOAD_HTTP_STATUS


@in_loop
async def test_a_dead_letter_that_no_longer_fits_is_cut(tmp_path: Path) -> None:
    async with laboratory(tmp_path) as lab:
        original = Bus.publish

        async def publish(self: Bus, topic: str, data: Any, *args: Any, **kwargs: Any) -> Any:
            if topic.endswith("dlq") and len(data) > 200_000:
                raise InvalidArgument("larger than this bus takes")
            return await original(self, topic, data, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Bus, "publish", publish)
            await lab.service.bus.publish(TASKS, b"\xff" * 200_000, key="j")
            letter = (await lab.buried(1))[0]
        assert letter.task.attributes.extra == b"\xff" * 65536
        assert "too large" in letter.failure_message


@in_loop
async def test_what_a_newer_schema_put_into_a_task_is_in_its_dead_letter_and_in_its_replay(tmp_path: Path) -> None:
    newer = b"\xc2\x3e\x05newer"
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        data = encode(_task(server.url("/status/404"), attempt=1)) + newer
        await lab.service.bus.publish(TASKS, data, key="j")
        letter = (await lab.buried(1))[0]
        assert newer in encode(letter.task)
        replayed = await lab.service.dead_letters.replay(Selection(job_id="j"))
        assert len(replayed.letters) == 1
        first, again = await lab.tasks()
        assert newer in encode(again)
        assert (first.attempt, again.attempt) == (1, 0)
        await lab.buried(2)


@in_loop
async def test_attempts_go_by_one_proxy_after_the_other(tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        forward_proxy(refuse=502) as first,
        forward_proxy(refuse=502) as second,
        forward_proxy() as third,
    ):
        config = tmp_path / "jobs.toml"
        config.write_text(
            f'[proxies.eu]\nurls = ["{first.url}", "{second.url}"]\nfallbacks = ["us"]\n'
            f'[proxies.us]\nurls = ["{third.url}"]\n[types.crawl]\nproxies = "eu"\n'
        )
        async with laboratory(tmp_path, config=str(config)) as lab:
            job_id = await lab.submit({"a": server.url("/ok/100")})
            assert (await lab.ended(job_id)).state == "completed"
            assert lab.resources(job_id)["a"].attempts == 3
            assert [len(proxy.requests) for proxy in (first, second, third)] == [1, 1, 1]
            assert server.paths["/ok/100"] == 1


@pytest.mark.parametrize(("given", "kept"), [("4BF92F3577B34DA6", "4bf92f3577b34da6"), ("xyz", None)])
@in_loop
async def test_a_malformed_trace_id_is_replaced_and_the_task_is_done(
    given: str, kept: str | None, tmp_path: Path
) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        task = _task(server.url("/ok/10"), trace_id=given)
        await lab.service.bus.publish("fetchbox.jobs.tasks", encode(task), key="j")
        assert (await lab.ended("j")).state == "completed"
        (trace_id,) = {log.trace_id for log in await lab.logs("j")}
        assert (trace_id == kept) if kept else (len(trace_id) == 32)


@in_loop
async def test_attempts_that_bring_bytes_are_not_used_up(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, max_attempts=2) as lab:
        job_id = await lab.submit({"a": server.url("/reset/1000?size=12000"), "b": server.url("/reset/0?size=12000")})
        assert (await lab.ended(job_id)).state == "partial"
        resources = lab.resources(job_id)
        assert lab.object(resources["a"].key) == body(12_000)
        assert (resources["a"].attempts, server.paths["/reset/1000"]) == (1, 12)
        assert (resources["b"].error_code, resources["b"].attempts) == ("DOWNLOAD_RESET", 2)


@in_loop
async def test_attempts_that_bring_bytes_end_with_the_time_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hostile_server() as server, laboratory(tmp_path, max_attempts=1, total_timeout_ms=150_000) as lab:
        clock = SimpleNamespace(monotonic=lambda: 60.0 * server.paths["/reset/1"], perf_counter=time.perf_counter)
        monkeypatch.setattr(task_runner, "time", clock)  # each attempt takes a minute
        job_id = await lab.submit({"a": server.url("/reset/1?size=12000")})
        assert (await lab.ended(job_id)).state == "failed"
        assert server.paths["/reset/1"] == 3
        assert lab.resources(job_id)["a"].attempts == 1


@in_loop
async def test_a_type_may_store_what_the_server_has_sent(tmp_path: Path) -> None:
    config = tmp_path / "jobs.toml"
    config.write_text("[types.raw]\ndecode = false\n[types.usual]\n")
    async with hostile_server() as server, laboratory(tmp_path, config=str(config)) as lab:
        for job_type in ("raw", "usual"):
            job_id = await lab.submit({"a": server.url("/gzip/1000")}, job_type=job_type)
            await lab.ended(job_id)
            stored = lab.object(lab.resources(job_id)["a"].key)
            assert (gzip.decompress(stored) if job_type == "raw" else stored) == body(1000)
