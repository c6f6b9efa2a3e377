"""Sets up OpenTelemetry for a program of ours, if its usual environment variables ask for that.

Off by default. Spans are made by `slipstream.spans`; here is what is behind them: a provider with a sampler, and an
exporter that sends OTLP over HTTP to a collector.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slipstream import __version__
from slipstream.spans import look_again

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"
EXTRA = "traces need libraries that are not installed: pip install 'slipstream[opentelemetry]', or unset {}"
LAST_SPANS_S = 5.0
"""How long the end of a program waits for a collector to take the last of them."""


class InvalidTelemetry(ValueError):
    """The variables ask for what is not there."""


def asked_for(environment: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """The exporter that is asked for, and the variable that does so; None where nobody asks. Raises
    InvalidTelemetry."""
    environment = os.environ if environment is None else environment

    def said(name: str) -> str:
        return environment.get(name, "").strip()

    if said("OTEL_SDK_DISABLED").lower() == "true":
        return None
    exporter, by = said("OTEL_TRACES_EXPORTER").lower(), "OTEL_TRACES_EXPORTER"
    if not exporter:
        by = next((name for name in ENDPOINTS if said(name)), "")
        exporter = "otlp" if by else "none"
    if exporter == "none":
        return None
    if exporter not in {"otlp", "console"}:
        raise InvalidTelemetry(f"OTEL_TRACES_EXPORTER={exporter!r:.80}: there is otlp, console and none")
    protocol = next((name for name in PROTOCOLS if said(name)), "")
    if exporter == "otlp" and protocol and said(protocol) != HTTP:
        raise InvalidTelemetry(
            f"{protocol}={said(protocol)!r:.80}: spans are sent as {HTTP}, to the port that a collector has for it, "
            "mostly 4318"
        )
    return exporter, by


@contextlib.contextmanager
def traced(service: str) -> Iterator[None]:
    """Spans of this process are exported, if the environment asks for it, until the end of the `with`, which sends the
    last of them. `service` is its name, unless OTEL_SERVICE_NAME says another. Raises InvalidTelemetry.

    Example:
        with traced("billing"):
            run(Router("routes.yaml"), worker)
    """
    asked = asked_for()
    if asked is None:
        yield
        return
    found = _provider(service, *asked)
    if found is None:
        yield
        return
    provider, exporter = found
    log.info("spans of %s are exported (%s)", provider.resource.attributes["service.name"], asked[1])
    try:
        yield
    finally:
        _conclude(provider, exporter)


def _conclude(provider: Any, exporter: Any) -> None:
    """The SDK would wait for a collector that is away as long as it tries to reach it, whatever time it is given."""
    flushing = threading.Thread(target=provider.force_flush, name="slipstream-last-spans", daemon=True)
    flushing.start()
    flushing.join(LAST_SPANS_S)
    if flushing.is_alive():
        log.warning("the collector has not taken the last spans")
        exporter.shutdown()
    provider.shutdown()


def _provider(service: str, kind: str, by: str) -> tuple[Any, Any] | None:
    """None where the program, or who started it, has set up another already."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra, and only for who asks
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        made: Callable[[], Any]
        if kind == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter as made  # noqa: PLC0415,N813
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter as made,  # noqa: N813
            )
    except ImportError as error:
        raise InvalidTelemetry(EXTRA.format(by)) from error
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        log.info("spans go where this program sends them; %s is not looked at", by)
        return None
    about = {"service.version": __version__}
    if not _is_named():
        about["service.name"] = service
    provider = TracerProvider(resource=Resource.create(about))
    exporter = made()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    look_again()
    return provider, exporter


def _is_named() -> bool:
    return "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
