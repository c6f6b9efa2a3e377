"""Downloads through a proxy: a real one, in the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.fetch import Fetcher
from slipstream.jobs.download.resolver import CheckedResolver
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.failure import Code, TaskFailed
from tests.client.loop import in_loop
from tests.jobs.certificate import certificate
from tests.jobs.download.workshop import job_settings, name_server, workshop
from tests.jobs.forward_proxy import forward_proxy
from tests.jobs.hostile_server import body, hostile_server

NAMES = {"files.example": ["8.8.8.8"], "inside.example": ["10.0.0.1"]}
"""8.8.8.8 is never connected to: the proxy of these tests takes everything to 127.0.0.1."""


@in_loop
async def test_a_download_goes_through_the_proxy() -> None:
    async with workshop(names=NAMES, allow_networks="") as shop, forward_proxy() as proxy:
        await shop.fetch("/ok/1000", host="files.example", proxy=proxy.url)
        assert shop.content() == body(1000)
        assert proxy.requests[0].raw_target == f"http://files.example:{shop.server.port}/ok/1000"


@in_loop
async def test_the_proxy_has_its_credentials_and_the_server_has_not() -> None:
    async with workshop(names=NAMES) as shop, forward_proxy() as proxy:
        await shop.fetch("/ok/10", host="files.example", proxy=proxy.url_with("user:password"))
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNzd29yZA=="
        assert "authorization" not in proxy.requests[0].headers


@in_loop
async def test_https_is_tunnelled(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path, "files.example")
    settings = job_settings()
    resolver = CheckedResolver(Addresses(), name_server(NAMES))
    async with (
        hostile_server(server_tls) as server,
        forward_proxy() as proxy,
        Fetcher(settings, tls=client_tls, resolver=resolver) as fetcher,
    ):
        with Spool(settings) as spool:
            await fetcher.fetch(server.url("/ok/1000", "files.example"), [], spool, proxy=proxy.url_with("u:p"))
            assert spool.content() == body(1000)
        assert proxy.requests[0].method == "CONNECT"
        assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize("host", ["10.0.0.1", "[::1]", "inside.example", "127.1"])
def test_the_target_is_checked_all_the_same(host: str) -> None:
    async def story() -> None:
        async with workshop(names=NAMES, allow_networks="") as shop, forward_proxy() as proxy:
            failure = await shop.failure("/ok/1", host=host, proxy=proxy.url)
            assert failure.code is Code.DOWNLOAD_FORBIDDEN_ADDRESS
            assert not proxy.requests
            way = f"/redirect?to={shop.server.url('/ok/1', host)}"
            assert (await shop.failure(way, host="files.example", proxy=proxy.url)).code is failure.code
            assert len(proxy.requests) == 1

    asyncio.run(story())


@in_loop
async def test_a_proxy_that_is_not_there_is_worth_another_try() -> None:
    async with workshop(names=NAMES) as shop:
        async with forward_proxy() as proxy:
            gone = proxy.url_with("user:password")
        failure = await shop.failure("/ok/1", host="files.example", proxy=gone)
        assert failure.code is Code.DOWNLOAD_PROXY
        assert failure.is_retryable
        assert "password" not in str(failure)


@pytest.mark.parametrize("status", [407, 502])
def test_a_proxy_that_refuses_the_tunnel_is_worth_another_try(status: int) -> None:
    async def story() -> None:
        async with workshop(names=NAMES) as shop, forward_proxy(refuse=status) as proxy:
            failure = await shop.failure("https://files.example/", proxy=proxy.url_with("user:password"))
            assert failure.code is Code.DOWNLOAD_PROXY
            assert failure.is_retryable
            assert str(status) in failure.message
            assert "password" not in str(failure)

    asyncio.run(story())


@in_loop
async def test_a_proxy_that_wants_a_password_says_so_without_a_tunnel_too() -> None:
    async with workshop(names=NAMES) as shop, forward_proxy(refuse=407) as proxy:
        failure = await shop.failure("/ok/1", host="files.example", proxy=proxy.url)
        assert failure.code is Code.DOWNLOAD_PROXY
        assert failure.is_retryable


@in_loop
async def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    async with workshop() as shop, forward_proxy() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await shop.fetch("/ok/1")
        assert not proxy.requests


@in_loop
async def test_a_download_through_a_proxy_goes_on_where_it_broke_off() -> None:
    async with workshop(names=NAMES) as shop, forward_proxy() as proxy:
        path = "/reset/600?size=1000"
        with pytest.raises(TaskFailed):
            await shop.fetch(path, host="files.example", proxy=proxy.url)
        fetched = await shop.fetch(path, host="files.example", proxy=proxy.url)
        assert fetched.is_resumed
        assert shop.content() == body(1000)
