"""Getting in: addresses, credentials, patience."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from pathlib import Path

import nkeys
import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import BusUnavailable, InvalidArgument, Unauthorized
from slipstream.bus.drivers.nats import connection
from slipstream.bus.opening import open_bus
from tests.bus.recorder import Recorder
from tests.bus.sites.nats import NatsSite
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop

JETSTREAM = "jetstream: enabled\n"
SEED_BYTES = bytes(range(32))


def user_keys() -> nkeys.KeyPair:
    seed = nkeys.encode_seed(SEED_BYTES, nkeys.PREFIX_BYTE_USER)
    return nkeys.from_seed(bytearray(seed))


def seed_text() -> str:
    return bytes(nkeys.encode_seed(SEED_BYTES, nkeys.PREFIX_BYTE_USER)).decode()


@in_loop
async def test_nothing_at_the_address_is_told_in_time_and_in_words() -> None:
    began = time.monotonic()
    with pytest.raises(BusUnavailable, match="NATS_URL"):
        await open_bus(driver="nats", nats_url=f"nats://127.0.0.1:{free_port()}", connect_timeout_ms=500)
    assert time.monotonic() - began < 30


@in_loop
async def test_an_address_that_asks_for_tls_is_not_spoken_to_in_the_clear(nats: NatsSite) -> None:
    with pytest.raises(BusUnavailable, match="says tls"):
        await open_bus(driver="nats", nats_url=f"tls://app:secret@127.0.0.1:{nats.port}", connect_timeout_ms=1_000)


@in_loop
async def test_a_server_that_comes_up_a_little_later_is_waited_for() -> None:
    site = NatsSite()
    await asyncio.to_thread(site.stop_server)
    try:
        opening = asyncio.create_task(open_bus(driver="nats", nats_url=site.url)._open())
        await asyncio.wait({opening}, timeout=0.5)
        assert not opening.done()
        await asyncio.to_thread(site.start_server)
        await (await opening).close()
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_a_password_that_is_wrong_is_told_at_once_and_not_shown(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(JETSTREAM + "authorization { user: app, password: right }\n")
    site = NatsSite("-c", str(config))
    address = f"127.0.0.1:{site.port}"
    try:
        with pytest.raises(Unauthorized) as told:
            await open_bus(driver="nats", nats_url=f"nats://app:wrong@{address}", connect_timeout_ms=20_000)
        assert "wrong" not in str(told.value)
        async with open_bus(driver="nats", nats_url=f"nats://app:right@{address}", registry=CollectorRegistry()) as bus:
            await bus.publish("orders", b"x")
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_an_nkey_seed_lets_us_in(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    public = user_keys().public_key.decode()
    config.write_text(JETSTREAM + f"authorization {{ users: [ {{ nkey: {public} }} ] }}\n")
    site = NatsSite("-c", str(config))
    try:
        settings = {**site.settings(), "nats_nkey_seed": seed_text(), "registry": CollectorRegistry()}
        async with open_bus(**settings) as bus:
            await bus.publish("orders", b"x")
        with pytest.raises(Unauthorized):
            await open_bus(**site.settings())
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_a_credentials_file_lets_us_in(tmp_path: Path) -> None:
    config, credentials = tmp_path / "nats.conf", tmp_path / "user.creds"
    operator, account, system, user = (
        nkeys.from_seed(bytearray(nkeys.encode_seed(bytes([number]) * 32, prefix)))
        for number, prefix in (
            (1, nkeys.PREFIX_BYTE_OPERATOR),
            (2, nkeys.PREFIX_BYTE_ACCOUNT),
            (4, nkeys.PREFIX_BYTE_ACCOUNT),
            (3, nkeys.PREFIX_BYTE_USER),
        )
    )
    unlimited = {
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1,
        "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    }  # fmt: skip
    operator_jwt = _jwt(operator, operator, "operator", {})
    account_jwt = _jwt(operator, account, "account", {"limits": unlimited})
    system_jwt = _jwt(operator, system, "account", {"limits": {**unlimited, "mem_storage": 0, "disk_storage": 0}})
    user_jwt = _jwt(account, user, "user", {"subs": -1, "data": -1, "payload": -1})
    user_seed = bytes(nkeys.encode_seed(bytes([3]) * 32, nkeys.PREFIX_BYTE_USER)).decode()
    config.write_text(
        f"{JETSTREAM}operator: {operator_jwt}\nresolver: MEMORY\n"
        f"system_account: {system.public_key.decode()}\n"
        f"resolver_preload: {{ {account.public_key.decode()}: {account_jwt}\n"
        f"{system.public_key.decode()}: {system_jwt} }}\n"
    )
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user_seed}\n------END USER NKEY SEED------\n"
    )
    site = NatsSite("-c", str(config))
    try:
        settings = {**site.settings(), "nats_creds_path": str(credentials), "registry": CollectorRegistry()}
        async with open_bus(**settings) as bus:
            await bus.publish("orders", b"x")
        with pytest.raises(Unauthorized):
            await open_bus(**site.settings())
    finally:
        await asyncio.to_thread(site.close)


def _jwt(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, kind: str, claims: dict[str, object]) -> str:
    """A JWT as NATS has them: signed with Ed25519, and named `ed25519-nkey`."""
    body = {
        "jti": kind,
        "iat": 1_700_000_000,
        "iss": issuer.public_key.decode(),
        "name": kind,
        "sub": subject.public_key.decode(),
        "nats": {**claims, "type": kind, "version": 2},
    }
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
    return f"{signed}.{_encoded(issuer.sign(signed.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@in_loop
async def test_credentials_that_cannot_be_right_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="no such file"):
        await open_bus(driver="nats", nats_creds_path=str(tmp_path / "none.creds"))
    with pytest.raises(Unauthorized, match="begin with SU"):
        await open_bus(driver="nats", nats_nkey_seed="secret")
    with pytest.raises(InvalidArgument, match="one of them"):
        open_bus(driver="nats", nats_nkey_seed="SU", nats_creds_path="x")


@in_loop
async def test_a_server_that_has_fallen_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """Even with much that waits to be written: the system would try to get rid of it for a quarter of an hour."""
    monkeypatch.setattr(connection, "PING_S", 0.1)
    site = NatsSite()
    try:
        async with open_bus(registry=CollectorRegistry(), **site.settings()) as bus:
            await bus.ensure_topic(topic)
            site.freeze()
            try:
                sent = [await bus.send(topic, bytes(500_000)) for _ in range(20)]
                async with asyncio.timeout(10):
                    while "is lost" not in caplog.text:
                        await asyncio.sleep(0.02)
            finally:
                site.thaw()
            await asyncio.gather(*sent)
            assert len([stored async for stored in bus.read(topic)]) == 20
    finally:
        await asyncio.to_thread(site.close)


@in_loop
async def test_a_connection_that_the_server_ends_with_a_reason_is_made_again(nats: NatsSite, topic: str) -> None:
    """As it does when credentials have expired; the file may have newer ones by then."""
    between = Between(nats.port)
    async with between, open_bus(registry=CollectorRegistry(), driver="nats", nats_url=between.url) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=1)  # what was on its way comes again
        await bus.publish(topic, b"before")
        await handler.have(1)
        between.say(b"-ERR 'User Authentication Expired'\r\n")
        await asyncio.wait_for(bus.publish(topic, b"after"), 10)
        await handler.have(2)


@in_loop
async def test_a_flush_is_answered_after_all_that_was_said_before_it(nats: NatsSite, topic: str) -> None:
    settings = {**nats.settings(), "nats_jetstream": False}
    async with (
        open_bus(registry=CollectorRegistry(), **settings) as here,
        open_bus(registry=CollectorRegistry(), **settings) as there,
    ):
        handler = Recorder()
        for number in range(100):
            await here.subscribe(f"{topic}.{number}", "shipping", handler)
            await there.publish(f"{topic}.{number}", b"x")
        async with asyncio.timeout(20):
            await handler.have(100)


class Between:
    """Passes on what client and server say, and what it is told to say to the clients."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Future[object]] = []

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1")
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def say(self, words: bytes) -> None:
        for client in self._clients:
            client.write(words)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        self._clients.append(writer)
        self._tasks += [
            asyncio.ensure_future(_pass_on(reader, to_server)),
            asyncio.ensure_future(_pass_on(from_server, writer)),
        ]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
