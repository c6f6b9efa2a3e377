"""How programs write their log: one line per event, for people or for machines.

Whatever is logged while a message is handled says of which: by us, or by the application, in its handlers. Nobody has
to do anything for that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from slipstream.cli.output import one_line
from slipstream.handling import HANDLED, handling
from slipstream.spans import active_span, trace_id

NOISY = ("uvicorn.error", "opentelemetry.exporter")
"""Loggers of others that tell at `info` what nobody wants to know."""

_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def context() -> dict[str, Any]:
    """What is being handled where this is called, and the trace it belongs to."""
    found: dict[str, Any] = dict(handling())
    trace = trace_id(active_span() or (HANDLED.get() or {}).get("traceparent", ""))
    if trace is not None:
        found["traceId"] = trace
    return found


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **context(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:
            # Half a character, such as of a file name that is no UTF-8: escaped it is JSON, and nothing is lost.
            return json.dumps(line, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """For people: the time, how bad it is, what it is; and dimly what it is about."""

    def __init__(self, *, in_colour: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._in_colour = in_colour

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name there
        line = super().formatMessage(record)
        # The trace is for machines, which look it up.
        about = " ".join(
            f"{name}={one_line(str(value))}" for name, value in context().items() if name != "traceId" and value != ""
        )
        if not self._in_colour:
            return f"{line}  [{about}]" if about else line
        colour = _COLOURS.get(record.levelname, "")
        line = f"{colour}{line}{_PLAIN}" if colour else line
        return f"{line}  {_DIM}[{about}]{_PLAIN}" if about else line


def configure_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(in_colour=sys.stderr.isatty() and not os.environ.get("NO_COLOR")))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
