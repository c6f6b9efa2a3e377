"""One attempt at a download, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from slipstream import __version__
from slipstream.jobs.download.fetch import Fetcher
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.failure import Code, TaskFailed
from tests.client.loop import in_loop
from tests.jobs.certificate import certificate
from tests.jobs.download.workshop import Workshop, job_settings, workshop
from tests.jobs.hostile_server import LAST_MODIFIED, body, hostile_server

SIZES = [0, 1, 1000, 100_000, 3_000_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("route", ["ok", "chunked", "gzip", "deflate", "raw-deflate"])
def test_a_body_arrives_as_it_is(route: str, size: int) -> None:
    async def story() -> None:
        async with workshop() as shop:
            fetched = await shop.fetch(f"/{route}/{size}")
            assert shop.content() == body(size)
            assert shop.spool.size == size
            assert shop.spool.sha256 == hashlib.sha256(body(size)).hexdigest()
            assert fetched.status == 200
            if route == "ok":
                assert (fetched.mime, fetched.etag) == ("application/octet-stream", '"v1"')
                assert (fetched.size_sent, fetched.encoding) == (size, "")

    asyncio.run(story())


@in_loop
async def test_connections_are_kept() -> None:
    async with workshop() as shop:
        for number in range(10):
            await shop.fetch(f"/ok/{number}")
        assert shop.server.connections == 1


# What is sent


async def sent(shop: Workshop) -> dict[str, str]:
    return {name.lower(): value for name, value in json.loads(shop.content())}


@in_loop
async def test_a_request_says_who_we_are_and_asks_for_the_thing_itself() -> None:
    async with workshop() as shop:
        await shop.fetch("/headers")
        headers = await sent(shop)
        assert headers["user-agent"] == f"slipstream/{__version__}"
        assert headers["accept-encoding"] == "identity"
        assert "cookie" not in headers


@in_loop
async def test_a_task_has_its_own_headers_and_not_those_that_are_ours() -> None:
    async with workshop() as shop:
        given = [
            ("user-agent", "me"),
            ("Accept-Encoding", "gzip"),
            ("X-A", "1"),
            ("Host", "evil"),
            ("Range", "bytes=5-"),
        ]
        await shop.fetch("/headers", given)
        headers = await sent(shop)
        assert (headers["user-agent"], headers["accept-encoding"], headers["x-a"]) == ("me", "gzip", "1")
        assert headers["host"] == f"127.0.0.1:{shop.server.port}"
        assert "range" not in headers
        failure = await shop.failure("/ok/1", [("X-A", "a\r\nX-B: c")])
        assert failure.code is Code.DOWNLOAD_INVALID_HEADER


@in_loop
async def test_credentials_of_the_url_are_sent_and_shown_to_nobody() -> None:
    async with workshop() as shop:
        url = shop.server.url("/headers").replace("://", "://user:password@")
        fetched = await shop.fetch(url)
        assert (await sent(shop))["authorization"] == "Basic dXNlcjpwYXNzd29yZA=="
        assert "password" not in fetched.url
        failure = await shop.failure(shop.server.url("/status/404?key=abc").replace("://", "://user:password@"))
        assert "password" not in str(failure)
        assert "abc" not in str(failure)


@in_loop
async def test_cookies_are_not_kept() -> None:
    async with workshop() as shop:
        await shop.fetch("/headers", [("Cookie", "a=b")])
        assert (await sent(shop))["cookie"] == "a=b"
        await shop.fetch("/headers")
        assert "cookie" not in await sent(shop)


# Statuses


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 408, 425, 429, 499])
def test_a_status_that_may_pass_is_worth_another_try(status: int) -> None:
    async def story() -> None:
        async with workshop() as shop:
            failure = await shop.failure(f"/status/{status}")
            assert failure.code is Code.DOWNLOAD_HTTP_STATUS
            assert failure.is_retryable
            assert str(status) in failure.message

    asyncio.run(story())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 416, 300, 304])
def test_a_status_that_stays_is_not(status: int) -> None:
    async def story() -> None:
        async with workshop() as shop:
            failure = await shop.failure(f"/status/{status}")
            assert failure.code is Code.DOWNLOAD_HTTP_STATUS
            assert not failure.is_retryable

    asyncio.run(story())


@in_loop
async def test_any_2xx_is_success_but_a_part_nobody_asked_for() -> None:
    async with workshop() as shop:
        assert (await shop.fetch("/status/203")).status == 203
        assert (await shop.fetch("/status/204")).status == 204
        assert shop.content() == b""
        failure = await shop.failure("/unasked-range")
        assert failure.code is Code.DOWNLOAD_HTTP_STATUS
        assert not failure.is_retryable


@in_loop
async def test_a_host_that_asks_for_patience_gets_it_from_everybody() -> None:
    async with workshop(host_concurrency=0) as shop:
        failure = await shop.failure("/retry-after/3600/a")
        assert failure.is_retryable
        assert failure.retry_after_s == 3600
        assert shop.fetcher.hosts.delay_s("127.0.0.1") > 3500
        waiting = asyncio.create_task(shop.fetch("/ok/1"))
        await asyncio.sleep(0.02)
        assert len(shop.server.requests) == 1, "nobody else asks it meanwhile"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@in_loop
async def test_patience_has_an_end_by_setting_and_other_statuses_ask_for_none() -> None:
    async with workshop(retry_after_max_ms=1) as shop:
        failure = await shop.failure("/retry-after/3600/a?status=503")
        assert failure.retry_after_s == 3600
        await shop.fetch("/retry-after/3600/a?status=503")
        assert (await shop.failure("/retry-after/7/b?status=500")).retry_after_s == 7
        assert (await shop.failure("/retry-after/soon/c")).retry_after_s is None
        assert (await shop.failure("/retry-after/-5/d")).retry_after_s is None
        assert 0 < shop.fetcher.hosts.delay_s("127.0.0.1") <= 1, "429 without a time is a pause of our own"


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(status: int) -> None:
    async def story() -> None:
        async with workshop() as shop:
            fetched = await shop.fetch(f"/redirect?to=/redirect%3Fto=/ok/10&status={status}")
            assert shop.content() == body(10)
            assert fetched.url == shop.server.url("/ok/10")
            assert fetched.redirects == 2

    asyncio.run(story())


@in_loop
async def test_a_circle_of_redirects_ends() -> None:
    async with workshop(max_redirects=5) as shop:
        failure = await shop.failure("/loop")
        assert failure.code is Code.DOWNLOAD_TOO_MANY_REDIRECTS
        assert not failure.is_retryable
        assert shop.server.paths["/loop"] == 6


@in_loop
async def test_a_redirect_without_a_location_leads_nowhere() -> None:
    async with workshop() as shop:
        failure = await shop.failure("/no-location")
        assert failure.code is Code.DOWNLOAD_HTTP_STATUS
        assert not failure.is_retryable
        assert "without a Location" in failure.message


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://[::1]:1/", "http://2130706433/",
        "http://0x7f.1/", "http://127.1/", "http://[::ffff:10.0.0.1]/", "http://inside.example/", "//0.0.0.0/",
    ],
)  # fmt: skip
def test_a_redirect_does_not_lead_inside(location: str) -> None:
    async def story() -> None:
        names = {"inside.example": ["10.0.0.1", "::ffff:192.168.0.1"]}
        async with workshop(names=names, allow_networks="127.0.0.1/32") as shop:
            failure = await shop.failure(f"/redirect?to={location}")
            assert failure.code is Code.DOWNLOAD_FORBIDDEN_ADDRESS
            assert not failure.is_retryable

    asyncio.run(story())


@in_loop
async def test_a_redirect_to_a_file_is_refused() -> None:
    async with workshop() as shop:
        assert (await shop.failure("/redirect?to=file:///etc/passwd")).code is Code.DOWNLOAD_INVALID_URL


SECRETS = [("Authorization", "Bearer x"), ("Cookie", "a=b"), ("X-Api-Key", "k"), ("Accept", "text/plain")]


@in_loop
async def test_credentials_go_along_within_an_origin_only() -> None:
    async with workshop() as shop, hostile_server() as other:
        await shop.fetch("/redirect?to=/headers", SECRETS)
        assert {"authorization", "cookie", "x-api-key", "accept"} <= set(await sent(shop))
        await shop.fetch(f"/redirect?to={other.url('/headers')}", SECRETS)
        headers = await sent(shop)
        assert not {"authorization", "cookie", "x-api-key"} & set(headers)
        assert headers["accept"] == "text/plain"


@in_loop
async def test_credentials_do_not_come_back_by_a_way_back() -> None:
    async with workshop() as shop, hostile_server() as other:
        back = shop.server.url("/headers")
        await shop.fetch(f"/redirect?to={other.url('/redirect')}%3Fto={back}", SECRETS)
        assert "authorization" not in await sent(shop)


@in_loop
async def test_credentials_do_not_go_from_https_to_http(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path)
    settings = job_settings()
    async with hostile_server(server_tls) as secure, hostile_server() as plain, Fetcher(settings, tls=client_tls) as f:
        with Spool(settings) as spool:
            await f.fetch(secure.url(f"/redirect?to={plain.url('/headers')}"), SECRETS, spool)
            assert secure.requests[0].headers["authorization"] == "Bearer x"
            assert "authorization" not in plain.requests[0].headers


# Addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "0"])
def test_an_inside_address_is_never_connected_to(host: str) -> None:
    async def story() -> None:
        async with workshop(allow_networks="") as shop:
            failure = await shop.failure("/ok/1", host=host)
            assert failure.code is Code.DOWNLOAD_FORBIDDEN_ADDRESS
            assert not shop.server.connections

    asyncio.run(story())


@in_loop
async def test_a_name_nobody_knows_is_worth_another_try() -> None:
    async with workshop(names={}) as shop:
        failure = await shop.failure("http://nobody.example/")
        assert failure.code is Code.DOWNLOAD_DNS
        assert failure.is_retryable


def test_networks_that_are_none_are_noticed_at_once() -> None:
    with pytest.raises(InvalidJobs, match="JOBS_ALLOW_NETWORKS"):
        Fetcher(job_settings(allow_networks="everywhere"))


# Too large


@in_loop
async def test_what_announces_too_much_is_refused_before_a_byte_is_kept() -> None:
    async with workshop() as shop:
        failure = await shop.failure("/huge")
        assert failure.code is Code.DOWNLOAD_TOO_LARGE
        assert not failure.is_retryable
        assert shop.spool.size == 0


@in_loop
async def test_what_never_ends_is_too_large_at_some_time() -> None:
    async with workshop(max_bytes=1_000_000) as shop:
        failure = await shop.failure("/endless")
        assert failure.code is Code.DOWNLOAD_TOO_LARGE
        assert shop.spool.size <= 1_000_000
        await shop.fetch("/ok/1000000")
        assert (await shop.failure("/gzip/1000001")).code is Code.DOWNLOAD_TOO_LARGE


@in_loop
async def test_bombs_and_odd_encodings_are_refused() -> None:
    async with workshop() as shop:
        failure = await shop.failure("/bomb")
        assert failure.code is Code.DOWNLOAD_BOMB
        assert not failure.is_retryable
        assert (await shop.failure("/encoding/br")).code is Code.DOWNLOAD_ENCODING


@in_loop
async def test_a_compressed_body_without_its_end_starts_anew_the_next_time() -> None:
    async with workshop() as shop:
        failure = await shop.failure("/gzip-truncated/1000")
        assert failure.code is Code.DOWNLOAD_PROTOCOL
        assert failure.is_retryable
        await shop.fetch("/gzip/1000")
        assert "range" not in shop.server.requests[-1].headers
        assert shop.content() == body(1000)


# Broken off, and gone on with


@in_loop
async def test_a_download_goes_on_where_it_broke_off() -> None:
    async with workshop() as shop:
        path = "/reset/40000?size=100000"
        for size in (40_000, 80_000):
            failure = await shop.failure(path)
            assert failure.code is Code.DOWNLOAD_RESET
            assert failure.is_retryable
            assert shop.spool.size == size
        fetched = await shop.fetch(path)
        assert shop.content() == body(100_000)
        assert shop.spool.sha256 == hashlib.sha256(body(100_000)).hexdigest()
        assert fetched.is_resumed
        assert fetched.size_sent == 20_000
        asked = [(r.headers.get("range"), r.headers.get("if-range")) for r in shop.server.requests]
        assert asked == [(None, None), ("bytes=40000-", '"v1"'), ("bytes=80000-", '"v1"')]


@in_loop
async def test_a_date_will_do_where_there_is_no_etag() -> None:
    async with workshop(spool_memory_bytes=0) as shop:
        path = "/reset/60000?size=100000&last-modified-only=1"
        await shop.failure(path)
        await shop.fetch(path)
        assert shop.content() == body(100_000)
        assert shop.server.requests[-1].headers["if-range"] == LAST_MODIFIED


@pytest.mark.parametrize("route", ["reset-whole", "wrong-range", "changed", "gone-range"])
def test_a_server_that_does_not_go_on_starts_anew(route: str) -> None:
    async def story() -> None:
        async with workshop() as shop:
            path = f"/{route}/4000?size=10000"
            await shop.failure(path)
            assert shop.spool.size == 4000
            fetched = await shop.fetch(path)
            assert shop.content() == body(10_000)
            assert shop.spool.sha256 == hashlib.sha256(body(10_000)).hexdigest()
            assert not fetched.is_resumed

    asyncio.run(story())


@in_loop
async def test_a_body_that_ends_too_early_is_noticed() -> None:
    async with workshop() as shop:
        for _ in range(2):
            failure = await shop.failure("/truncated/10?size=1000")
            assert failure.code is Code.DOWNLOAD_RESET
            assert failure.is_retryable
        assert "range" not in shop.server.requests[-1].headers, "nothing proves that it would be the same"


@in_loop
async def test_a_download_that_is_cancelled_can_be_gone_on_with() -> None:
    async with workshop() as shop:
        task = asyncio.create_task(shop.fetch("/hang-body"))
        await shop.server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await shop.fetch("/ok/10")
        assert shop.content() == body(10)


# Timeouts


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/hang", {"read_timeout_ms": 500, "connect_timeout_ms": 500}),
        ("/hang-body", {"read_timeout_ms": 500}),
        ("/drip", {"total_timeout_ms": 800}),
        ("/drip", {"slowest_ms": 500, "slowest_bytes_per_s": 10_000}),
        ("/drip-head", {"read_timeout_ms": 500, "connect_timeout_ms": 500}),
    ],
)
def test_what_takes_too_long_is_given_up(path: str, given: dict[str, Any]) -> None:
    async def story() -> None:
        async with workshop(**given) as shop:
            failure = await shop.failure(path)
            assert failure.code is Code.DOWNLOAD_TIMEOUT
            assert failure.is_retryable
            assert (await shop.fetch("/ok/10")).status == 200, "others go on"

    asyncio.run(story())


@in_loop
async def test_a_drip_that_is_fast_enough_goes_on() -> None:
    async with workshop(slowest_ms=20, slowest_bytes_per_s=1, read_timeout_ms=2_000, total_timeout_ms=800) as shop:
        failure = await shop.failure("/drip")
        assert "JOBS_TOTAL_TIMEOUT_MS" in failure.message


# What is no HTTP, no TLS, or nobody


@pytest.mark.parametrize("path", ["/bad-chunks", "/not-http", "/many-headers"])
def test_what_is_no_http_is_a_failure_and_nothing_worse(path: str) -> None:
    async def story() -> None:
        async with workshop() as shop:
            failure = await shop.failure(path)
            assert failure.code is Code.DOWNLOAD_PROTOCOL
            assert failure.is_retryable

    asyncio.run(story())


@in_loop
async def test_nobody_there_is_worth_another_try() -> None:
    async with workshop() as shop:
        async with hostile_server() as other:
            url = other.url("/ok/1")
        failure = await shop.failure(url)
        assert failure.code is Code.DOWNLOAD_CONNECT
        assert failure.is_retryable


@in_loop
async def test_a_certificate_that_cannot_be_trusted_ends_it(tmp_path: Path) -> None:
    server_tls, _ = certificate(tmp_path)
    async with hostile_server(server_tls) as secure, workshop() as shop:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of it
        failure = await shop.failure(secure.url("/ok/1"))
        assert failure.code is Code.DOWNLOAD_TLS
        assert not failure.is_retryable
        assert "certificate" in failure.message


@in_loop
async def test_tls_where_there_is_none_is_worth_another_try() -> None:
    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Speak HTTP to me\r\n\r\n")
        writer.close()

    async with workshop() as shop, await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
        failure = await shop.failure(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/")
        assert failure.is_retryable
        assert failure.code is Code.DOWNLOAD_TLS


# Many at a time


@in_loop
async def test_no_more_at_a_time_than_a_host_may_have() -> None:
    settings = job_settings(host_concurrency=3)
    async with hostile_server() as server, Fetcher(settings) as fetcher:

        async def one(number: int) -> None:
            with Spool(settings) as spool:
                await fetcher.fetch(server.url(f"/hold/{number}"), [], spool)

        tasks = [asyncio.create_task(one(number)) for number in range(10)]
        while server.running < 3:
            await asyncio.sleep(0.001)
        server.release.set()
        await asyncio.gather(*tasks)
        assert server.running_most == 3


@in_loop
async def test_two_hosts_that_redirect_to_each_other_do_not_wait_for_each_other() -> None:
    settings = job_settings(host_concurrency=1)
    async with hostile_server() as server, Fetcher(settings) as fetcher:

        async def one(start: str, end: str) -> None:
            with Spool(settings) as spool:
                await fetcher.fetch(server.url(f"/redirect?to={server.url('/ok/1', end)}", start), [], spool)

        pairs = [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")] * 10
        await asyncio.gather(*(one(*pair) for pair in pairs), return_exceptions=False)


@in_loop
async def test_many_small_ones_go_through_few_connections() -> None:
    settings = job_settings(concurrency=8)
    async with hostile_server() as server, Fetcher(settings) as fetcher:

        async def one(number: int) -> None:
            with Spool(settings) as spool:
                await fetcher.fetch(server.url(f"/ok/{number}"), [], spool)
                assert spool.content() == body(number)

        await asyncio.gather(*(one(number) for number in range(300)))
        assert server.connections <= 8


@in_loop
async def test_failures_are_task_failures_and_nothing_else() -> None:
    async with workshop() as shop:
        for path in ("/nowhere", "http://[::1", "", "/status/500"):
            with pytest.raises(TaskFailed):
                await shop.fetch(path)
