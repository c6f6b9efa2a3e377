"""A collector of traces: takes what exporters send as OTLP over HTTP, and keeps it."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

PATIENCE_S = 120.0


class Seen(NamedTuple):
    """A span as it came."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    failed: str | None
    """What its status says, if that is an error."""


class Collector:
    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self._news = threading.Condition()
        collector = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/x-protobuf"
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library calls it
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._news:
            for group in request.resource_spans:
                service = _attributes(group.resource.attributes)["service.name"]
                self.spans += [_seen(service, span) for scope in group.scope_spans for span in scope.spans]
            self._news.notify_all()

    def until(self, question: Callable[[list[Seen]], bool]) -> None:
        with self._news:
            is_so = self._news.wait_for(lambda: question(self.spans), PATIENCE_S)
        assert is_so, "\n".join(f"{span.service} {span.name} {span.attributes}" for span in self.spans)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _seen(service: str, span: Any) -> Seen:
    failed = span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None
    return Seen(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        failed,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
