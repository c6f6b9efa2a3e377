"""What the doctor says about a NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import APIError, ServiceUnavailableError

from slipstream.bus.drivers.driver import Finding
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import FAILURES
from slipstream.bus.errors import BusError
from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.bus.settings import BusSettings
from slipstream.plurals import counted


async def examine(settings: BusSettings, prefix: str) -> AsyncIterator[Finding]:
    connection = Connection(settings)
    try:
        connection.check_credentials()
    except BusError as error:
        yield Finding("problem", "credentials", str(error))
        return
    yield Finding("ok", "credentials", _credentials(settings))
    try:
        await connection.open()
    except BusError as error:
        yield Finding("problem", "connection", str(error))
        return
    try:
        client = connection.nats
        yield Finding("ok", "connection", f"{connection.servers}, NATS {_version(client)}")
        if not settings.nats_jetstream:
            yield Finding("warning", "delivery", "NATS_JETSTREAM=false: at most once, nothing is stored or redelivered")
            return
        js = client.jetstream()
        async for finding in _jetstream(js, prefix):
            yield finding
    except FAILURES as error:
        yield Finding("problem", "connection", f"lost while looking: {error or type(error).__name__}")
    finally:
        await connection.close()


def _version(client: Client) -> str:
    version = client.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


def _credentials(settings: BusSettings) -> str:
    if settings.nats_creds_path:
        return f"NATS_CREDS_PATH={settings.nats_creds_path}"
    if settings.nats_nkey_seed:
        return "NATS_NKEY_SEED is set"
    return "those in NATS_URL" if "@" in settings.nats_url else "none"


async def _jetstream(js: JetStreamContext, prefix: str) -> AsyncIterator[Finding]:
    try:
        account = await js.account_info()
    except ServiceUnavailableError:
        yield Finding("problem", "JetStream", "not enabled: start the server with -js, or set NATS_JETSTREAM=false")
        return
    except APIError as error:
        yield Finding("warning", "JetStream", f"this account may not ask about itself: {error.description}")
        return
    held = f"{counted(account.streams, 'stream')}, {counted(account.consumers, 'consumer')}"
    yield Finding("ok", "JetStream", f"{held}, {counted(account.storage, 'byte')} stored")
    streams = [info for info in await _streams(js) if _is_ours(info, prefix)]
    if not streams:
        yield Finding("ok", "streams", f"none yet for topics that start with {prefix!r}" if prefix else "none yet")
    for info in streams:
        name, subjects, kept = info.config.name or "", info.config.subjects or [], info.state.messages
        held = f"{counted(kept, 'message')}, {counted(info.state.bytes, 'byte')}"
        yield Finding("ok", f"stream {name}", f"{held}; subjects: {', '.join(subjects)}")
        if kept and all(subject.endswith(DEAD_LETTER_SUFFIX) for subject in subjects):
            topics = " ".join(subject.removeprefix(prefix) for subject in subjects)
            look = f"slipstream bus dlq list {topics}"
            yield Finding("warning", "dead letters", f"{kept:,} in {', '.join(subjects)}; look at them with: {look}")
        for consumer in await js.consumers_info(name):
            if not consumer.config.durable_name and consumer.config.ack_policy == "none":
                continue  # somebody reads or follows the stream, and is gone with it
            if consumer.config.deliver_subject or consumer.config.ack_policy not in {"explicit"}:
                yield Finding("warning", f"consumer {consumer.name}", f"of {name} is not one that the bus could use")
                continue
            waiting = f"{consumer.num_pending:,} to do, {consumer.num_ack_pending:,} in flight"
            yield Finding("ok", f"group {consumer.name}", f"{name}: {waiting}")


async def _streams(js: JetStreamContext) -> list[StreamInfo]:
    streams: list[StreamInfo] = []
    while page := await js.streams_info(offset=len(streams)):
        streams += page
    return streams


def _is_ours(info: StreamInfo, prefix: str) -> bool:
    return any(subject.startswith(prefix) for subject in info.config.subjects or ())
