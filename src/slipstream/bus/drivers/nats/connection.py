"""The connection to a NATS server or cluster: made with patience, kept for ever, and spoken of when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import AuthorizationError, NoServersError
from nats.errors import Error as NatsError

from slipstream.bus.errors import BusUnavailable, InvalidArgument, Unauthorized
from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

RECONNECT_PAUSE_S = 0.25
PING_S = 5.0
"""The server is asked so often whether it is there; after two that it did not answer the connection is given up. The
client would wait for six minutes, and what is published in that time would fail."""
_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)
PENDING_BYTES = 8 << 20
"""What may wait in the client while the server is away: acks, most of all."""


class Connection:
    """A client of nats-py that reconnects without end, and tells those who ask when it has."""

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._nats: Client | None = None
        self._errors: list[Exception] = []
        self._closing = False
        self.on_disconnect: list[Callable[[], None]] = []
        """Called when the connection is lost, and before there is another."""
        self.on_reconnect: list[Callable[[], None]] = []
        """Called when the connection is there again: what was asked before may have been lost."""
        self.on_denied: list[Callable[[str, str], None]] = []
        """Called with `publish` or `subscription`, and the subject that is not for us, in lower case: nats-py's."""

    @property
    def nats(self) -> Client:
        assert self._nats is not None, "the bus is open"
        return self._nats

    @property
    def servers(self) -> str:
        """For people: without the passwords that may be in addresses."""
        return ", ".join(_without_secrets(server) for server in self._addresses())

    def _addresses(self) -> list[str]:
        return [server.strip() for server in self._settings.nats_url.split(",") if server.strip()]

    @property
    def trouble(self) -> str:
        """Of a bus that is open: why nothing can be heard now, or ""."""
        return "" if self.nats.is_connected else f"the connection to NATS at {self.servers} is lost; trying on"

    async def open(self) -> None:
        """Tries for as long as the settings allow. Raises Unauthorized at once where that is the answer."""
        timeout_s = self._settings.connect_timeout_ms / 1000
        until = asyncio.get_running_loop().time() + timeout_s
        self.check_credentials()
        while True:
            try:
                async with asyncio.timeout_at(until):
                    self._nats = await self._connect()
            except (NoServersError, OSError, TimeoutError) as error:  # TimeoutError is an OSError: ours, or theirs
                if any(isinstance(each, AuthorizationError) or _is_refusal(each) for each in self._errors):
                    raise self._unauthorized() from error
                if untrusted := next(
                    (each for each in self._errors if isinstance(each, ssl.SSLCertVerificationError)), None
                ):
                    raise BusUnavailable(
                        f"the certificate of the NATS server at {self.servers} is not trusted "
                        f"({untrusted.verify_message}): set NATS_CA to a file with the certificate that signed it"
                    ) from error
                if asyncio.get_running_loop().time() + RECONNECT_PAUSE_S >= until:
                    reason = str(self._errors[-1]) if self._errors else str(error) or "no answer"
                    raise BusUnavailable(
                        f"no NATS server at {self.servers} after {timeout_s:g} s ({reason}): start one with "
                        "nats-server -js, or set NATS_URL"
                    ) from error
                await asyncio.sleep(RECONNECT_PAUSE_S)
            except (ValueError, NatsError) as error:
                raise InvalidArgument(f"NATS_URL={self.servers} cannot be used: {error}") from error
            else:
                return

    async def _connect(self) -> Client:
        settings = self._settings
        context = tls_context(settings)
        client = _Client()
        client.needs_tls = context is not None
        await client.connect(
            servers=self._addresses(),
            name="slipstream-bus",
            user_credentials=settings.nats_creds_path or None,
            nkeys_seed_str=settings.nats_nkey_seed or None,
            tls=context,
            connect_timeout=2,
            ping_interval=PING_S,  # type: ignore[arg-type]
            max_outstanding_pings=2,
            reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]
            # While connecting, few: who waits is to be told what is wrong. From then on, without end.
            max_reconnect_attempts=1,
            pending_size=PENDING_BYTES,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_closed,
        )
        client.options["max_reconnect_attempts"] = -1
        return client

    def check_credentials(self) -> None:
        path = self._settings.nats_creds_path
        if path and not Path(path).is_file():
            raise Unauthorized(f"NATS_CREDS_PATH={path}: there is no such file")
        tls_context(self._settings)
        if self._settings.nats_nkey_seed and not self._settings.nats_nkey_seed.startswith("SU"):
            raise Unauthorized("NATS_NKEY_SEED is no seed of a user: those begin with SU")

    def _unauthorized(self) -> Unauthorized:
        return Unauthorized(
            f"the NATS server at {self.servers} does not let us in (authorization violation): "
            "check NATS_CREDS_PATH, NATS_NKEY_SEED, or the user and password in NATS_URL"
        )

    async def close(self) -> None:
        self._closing = True
        if self._nats is not None and not self._nats.is_closed:
            with contextlib.suppress(NatsError, TimeoutError):
                if self._nats.is_connected:
                    await self._nats.flush(timeout=2)
            try:
                await self._nats.close()
            except OSError:
                # nats-py stops half way where it has something left to say and nobody is there any more. It has given
                # that up by now, and comes to an end if it is asked again.
                self._nats._status = Client.DISCONNECTED
                await self._nats.close()

    # From the client

    async def _on_error(self, error: Exception) -> None:
        self._errors = [*self._errors[-9:], error]
        if self._nats is not None and not self._closing:
            log.warning("NATS says: %s", error or type(error).__name__)
        if denial := _DENIAL.search(str(error)):
            for tell in list(self.on_denied):
                tell(denial[1].lower(), denial[2].lower())

    async def _on_disconnect(self) -> None:
        if not self._closing and self._nats is not None:
            log.warning("NATS: the connection to %s is lost; trying on", self.servers)
            for tell in self.on_disconnect:
                tell()

    async def _on_reconnect(self) -> None:
        log.info("NATS: connected again")
        for tell in list(self.on_reconnect):
            tell()

    async def _on_closed(self) -> None:
        if not self._closing and self._nats is not None:
            log.error("NATS: the connection to %s is closed for good: %s", self.servers, self._nats.last_error)


def tls_context(settings: BusSettings) -> ssl.SSLContext | None:
    """Return what TLS connections are made with; None where no setting asks for them, and the address decides.

    Raises Unauthorized for files that cannot be used.
    """
    if not (settings.nats_ca or settings.nats_cert):
        return None
    for name, path in (
        ("NATS_CA", settings.nats_ca),
        ("NATS_CERT", settings.nats_cert),
        ("NATS_KEY", settings.nats_key),
    ):
        if path and not Path(path).is_file():
            raise Unauthorized(f"{name}={path}: there is no such file")
    try:
        context = ssl.create_default_context(cafile=settings.nats_ca or None)
    except (ssl.SSLError, OSError) as error:
        raise Unauthorized(f"NATS_CA={settings.nats_ca} holds no certificates: {error}") from error
    if settings.nats_cert:
        try:
            context.load_cert_chain(settings.nats_cert, settings.nats_key)
        except (ssl.SSLError, OSError) as error:
            raise Unauthorized(
                f"NATS_CERT={settings.nats_cert} and NATS_KEY={settings.nats_key} are no pair of a certificate and "
                f"its key: {error}"
            ) from error
    return context


class _Client(Client):
    """nats-py's, which does not give up."""

    needs_tls = False
    """Whether settings ask for TLS, whatever the address says."""

    async def _process_err(self, err_msg: str) -> None:
        """The server says why it ends the connection: that credentials have expired, that it has too many clients. The
        client would close for good, and leave a subscriber that is deaf; by the next time the reason may be gone."""
        if self.is_connected and "permissions violation" not in err_msg.lower():
            await self._error_cb(NatsError(f"nats: {err_msg.strip(chr(39))}"))
            await self._process_op_err(NatsError(err_msg))
        else:
            await super()._process_err(err_msg)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Who asks for TLS gets it, or nothing. The client would go on in the clear, with the password, where the
        server, or somebody between, does not ask for it."""
        by_address = self._current_server is not None and self._current_server.uri.scheme == "tls"
        asks_for_tls = self.needs_tls or by_address
        if initial_connection and asks_for_tls and not info.get("tls_required"):
            if not info.get("tls_available"):
                what = "the address says tls" if by_address else "NATS_CA or NATS_CERT is set"
                raise NatsError(f"nats: {what}, and the server offers no TLS")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Behind what was said before. The client's own overtakes it, so that a flush was answered while what it was
        for was still to be sent: a subscriber that had left got messages, and one that had come did not."""
        if self.is_connected and self._pending and self._transport is not None:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_op_err(self, e: Exception) -> None:
        """What waits to be written keeps a connection open that nobody reads from any more, and us from the next."""
        writer = getattr(self._transport, "_io_writer", None)
        if self.is_connected and writer is not None:
            writer.transport.abort()
        await super()._process_op_err(e)


def _is_refusal(error: Exception) -> bool:
    text = str(error).lower()
    return "authorization" in text or "authentication" in text


def _without_secrets(server: str) -> str:
    scheme, separator, rest = server.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
