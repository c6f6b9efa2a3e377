"""TLS to a real server that asks for a client certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import BusUnavailable, InvalidArgument, Unauthorized, load_settings, open_bus
from slipstream.pipeline.source.opening import open_log
from tests.bus.drivers.nats.certificates import Authority
from tests.bus.recorder import Recorder
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def secure(folder: Path, authority: Authority) -> Iterator[NatsSite]:
    """A server that takes TLS only, and only from clients with a certificate of the authority."""
    certificate, key = authority.issue("server")
    config = folder / "nats.conf"
    config.write_text(
        "jetstream: enabled\n"
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.certificate}", verify: true }}\n'
    )
    site = NatsSite("-c", str(config))
    yield site
    site.close()


@pytest.fixture(scope="module")
def ours(authority: Authority) -> dict[str, Any]:
    certificate, key = authority.issue("client")
    return {"nats_ca": str(authority.certificate), "nats_cert": str(certificate), "nats_key": str(key)}


@in_loop
async def test_a_client_with_a_certificate_publishes_and_consumes(
    secure: NatsSite, ours: dict[str, Any], topic: str
) -> None:
    handler = Recorder()
    async with open_bus(**secure.settings(), **ours) as bus:
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"x")
        await handler.have(1)


@in_loop
async def test_the_connector_reads_with_the_files_that_its_options_name(
    secure: NatsSite, ours: dict[str, Any], topic: str
) -> None:
    async with open_bus(**secure.settings(), **ours) as bus:
        await bus.publish(topic, b"x")
    files = {"natsCaPath": ours["nats_ca"], "natsCertPath": ours["nats_cert"], "natsKeyPath": ours["nats_key"]}

    def standing() -> object:
        with open_log({"bus": "nats", "natsUrl": secure.url, **files}) as log:
            return log.standing([topic])[topic]

    assert await asyncio.to_thread(standing)


@in_loop
async def test_a_client_without_one_is_not_let_in(secure: NatsSite, ours: dict[str, Any]) -> None:
    only_ca = {"nats_ca": ours["nats_ca"], "connect_timeout_ms": 300}
    with pytest.raises(BusUnavailable, match="no NATS server"):
        await open_bus(**secure.settings(), **only_ca)


@in_loop
async def test_a_server_that_another_authority_has_signed_is_not_trusted(
    secure: NatsSite, ours: dict[str, Any], tmp_path: Path
) -> None:
    other = str(Authority(tmp_path, "other").certificate)
    with pytest.raises(BusUnavailable, match=r"is not trusted .*: set NATS_CA"):
        await open_bus(**secure.settings(), **{**ours, "nats_ca": other}, connect_timeout_ms=500)


@in_loop
async def test_a_server_without_tls_is_not_spoken_to_where_certificates_are_set(
    nats: NatsSite, ours: dict[str, Any]
) -> None:
    with pytest.raises((BusUnavailable, InvalidArgument), match="NATS_CA or NATS_CERT is set, and the server"):
        await open_bus(**nats.settings(), **ours, connect_timeout_ms=300)


@in_loop
async def test_files_that_cannot_be_used_are_named_before_anything_is_asked(
    nats: NatsSite, ours: dict[str, Any], tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(Unauthorized, match=r"NATS_CA=.*missing.pem: there is no such file"):
        await open_bus(**nats.settings(), nats_ca=missing)
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no certificate")
    with pytest.raises(Unauthorized, match="holds no certificates"):
        await open_bus(**nats.settings(), nats_ca=str(nothing))
    with pytest.raises(Unauthorized, match="are no pair"):
        await open_bus(**nats.settings(), **{**ours, "nats_key": ours["nats_cert"]})
    with pytest.raises(InvalidArgument, match="NATS_CERT and NATS_KEY are a pair"):
        load_settings({"nats_cert": ours["nats_cert"]}, {})
