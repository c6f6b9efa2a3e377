"""`/health/live`, `/health/ready` and `/metrics`, answered by a thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from slipstream.health.health import Answer, Health

log = logging.getLogger(__name__)

REQUEST_S = 5.0
"""So long a request may take to arrive, and an answer to leave."""
REQUESTS_AT_A_TIME = 16
"""Each is a thread: whoever opens more is hung up on."""
JSON = "application/json"


class CannotListen(OSError):
    """The port is another's, or the address is none of this machine's."""


@contextlib.contextmanager
def answering_at(
    host: str, port: int, health: Health, registry: CollectorRegistry | None = None
) -> Iterator[tuple[str, int]]:
    """Answers until the end of the `with`; yields where, for port 0 is any that is free. Raises CannotListen."""
    try:
        server = _Server(host, port, health, REGISTRY if registry is None else registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(
            f"{host}:{port} cannot be listened at: {reason}; choose another with --health-port, or stop what is there"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="slipstream-health", daemon=True)
    thread.start()
    try:
        yield server.server_address[:2]  # type: ignore[misc]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, health: Health, registry: CollectorRegistry) -> None:
        self.health = health
        self.registry = registry
        self._places = threading.BoundedSemaphore(REQUESTS_AT_A_TIME)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Request)

    def server_bind(self) -> None:
        """Without asking who else the address belongs to: that may take a minute where nobody answers."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # who has gone away, or was too slow, is no affair of the part's
            log.exception("a request to the port of health and metrics failed")


class _Request(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            answer = self._answer(path)
        except Exception:
            log.exception("%s could not be answered", path)
            answer = _refused(500, "INTERNAL", f"{path} could not be answered; the log of the part says why")
        self._send(*answer)

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        match path:
            case "/health/live":
                return _told(self.server.health.liveness())
            case "/health/ready":
                return _told(self.server.health.readiness())
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self.server.registry)
            case _:
                words = "this port is for health checks, and no broker: it has /health/live, /health/ready and /metrics"
                return _refused(404, "NOT_FOUND", words)

    do_HEAD = do_GET  # noqa: N815 - its name there

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses: an unknown method, a head that is none or too long."""
        self.close_connection = True
        if code == 501:
            self._send(*_refused(405, "METHOD_NOT_ALLOWED", "here one can only GET"), allow="GET, HEAD")
        else:
            self._send(*_refused(code, "INVALID_ARGUMENT", message or "that is no request"))

    def _send(self, code: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "slipstream"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Somebody asks every second, and nobody wants to read that."""


def _told(answer: Answer) -> tuple[int, str, bytes]:
    return 200 if answer.is_well else 503, JSON, msgspec.json.encode(answer)


def _refused(code: int, error: str, message: str) -> tuple[int, str, bytes]:
    return code, JSON, msgspec.json.encode({"error": error, "message": message})
