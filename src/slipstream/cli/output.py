"""How commands speak: tables and colours for people, JSON for machines, and errors that say what to do next."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import rich_click as click
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slipstream.api import DeadLetterItem, FetchedMessage, LogMessage
from slipstream.variables import DATA

if TYPE_CHECKING:
    from slipstream.client import SlipstreamError

NOT_ALL_DONE, NOT_FOUND, CONFLICT, UNREACHABLE, OVERLOADED, INTERRUPTED = 1, 3, 4, 5, 6, 130

EXIT_CODES = """[bold]Exit codes:[/] 0 done, 1 refused or not all done, 2 typed wrongly, 3 there is no such thing,
4 it does not fit the state of things, 5 no server there or it cannot answer now, 6 the server asks to wait,
130 interrupted.
"""

RETRY_FOR_MS = 3_000
"""Somebody sits there and waits."""

WIDE = 1_000
"""Columns where nobody looks: a pipe gets whole lines."""
GAP = 2
"""Between two columns."""
LAST_MIN = 20
"""Characters of the last column that are worth a line."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """As where there is no console; rich would exit with 1."""
        raise BrokenPipeError


class Output:
    """Answers go to stdout, everything else to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
        self.err = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else WIDE)

    def json(self, answer: object) -> None:
        """One line of JSON."""
        sys.stdout.write(msgspec.json.encode(plain(answer)).decode() + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """For people only."""
        if not self.as_json:
            self.out.print(text)

    def note(self, text: str) -> None:
        """Beside the answer."""
        self.err.print(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Columns whose name starts with `>` hold numbers, and are aligned on the right.

        Where a terminal is too narrow the last column is cut, which is the longest text; where even that does not do,
        every row is a block: half an id is none.
        """
        names = [column.removeprefix(">") for column in columns]
        texts = [[_text(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(names, *_plain(texts), strict=True)]
        room = max(1, self.out.width - sum(widths[:-1]) - GAP * (len(widths) - 1))
        if len(names) > 2 and room < min(widths[-1], LAST_MIN):
            self._blocks(names, texts)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, column, width in zip(names, columns, [*widths[:-1], min(widths[-1], room)], strict=True):
            number = column.startswith(">")
            table.add_column(name, justify="right" if number else "left", no_wrap=True, width=width)
        for row in texts:
            table.add_row(*row)
        self.out.print(table)

    def _blocks(self, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        width = max(map(cell_len, names))
        for index, row in enumerate(rows):
            if index:
                self.out.print()
            for name, text in zip(names, row, strict=True):
                if text.plain:
                    self.out.print(Text.assemble((f"{name:<{width}}  ", "bold"), text), soft_wrap=True)


def _text(cell: object) -> Text:
    return Text.from_markup(cell) if isinstance(cell, Marked) else Text(one_line(str(cell)))


def _plain(rows: Sequence[Sequence[Text]]) -> list[list[str]]:
    return [[text.plain for text in row] for row in rows]


class Marked(str):
    """Text with rich's markup in it, made by us."""

    __slots__ = ()


def warn_if(condition: bool, text: object) -> Marked:
    """Yellow where a person should look."""
    shown = escape(one_line(str(text)))
    return Marked(f"[yellow]{shown}[/]") if condition else Marked(shown)


def plain(answer: object) -> object:
    """The answer as JSON knows it: payloads as text, or base64 and said to be (ruling 16)."""
    if isinstance(answer, LogMessage | FetchedMessage | DeadLetterItem):
        fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
        for name, encoding in (("key", "key_encoding"), ("value", "encoding")):
            fields[name], fields[encoding] = text_or_base64(fields[name])
        optional = {
            "last_error",
            "redriven_from",
            "only_group",
        }  # as in the server's own JSON, not there where they are empty
        return {name: value for name, value in fields.items() if value is not None and (value or name not in optional)}
    return answer


def text_or_base64(payload: bytes) -> tuple[str, str | None]:
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def payload_text(payload: bytes) -> str:
    """One line for a terminal, whatever is in it."""
    text, encoding = text_or_base64(payload)
    if encoding is not None:
        return f"base64:{text}"
    return one_line(text)


def one_line(text: str) -> str:
    """Names come from anywhere, and what a terminal takes for an order must not reach it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def speaks(command: CommandT) -> CommandT:
    """Gives a command `--server` and `--json`, a client and an output, and an exit code for what went wrong."""

    @click.option(
        "-s",
        "--server",
        envvar="SLIPSTREAM_URL",
        help="Address of the server; also SLIPSTREAM_URL. By default the server that runs here.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
    @functools.wraps(command)
    def run(*args: Any, server: str | None, as_json: bool, **kwargs: Any) -> None:
        with answering(as_json, client_exit_code, client_advice) as output:
            from slipstream.client import Client  # noqa: PLC0415 - --help needs no client; who waits may press Ctrl-C

            with Client(server_url(server), retry_for_ms=RETRY_FOR_MS) as client:
                command(client, output, *args, **kwargs)

    return run  # type: ignore[return-value]


def server_url(named: str | None) -> str:
    """Return the address of the server for a command: the one that is named, or else the server that runs here.

    The rule is that of the bus (`slipstream.bus.discovery`), without the embedded broker: raises ConnectionFailed if
    no server runs on the directory that SLIPSTREAM_DATA names."""
    if named:
        return named
    from slipstream.client import ConnectionFailed  # noqa: PLC0415 - as above
    from slipstream.client.async_client import DEFAULT_URL  # noqa: PLC0415

    directory = os.environ.get("SLIPSTREAM_DATA", "").strip()
    if (Path(directory or DATA) / "LOCK").exists():
        from slipstream.store.lock import holder_address  # noqa: PLC0415 - it loads the store

        if address := holder_address(Path(directory or DATA)):
            return address
    if directory:
        raise ConnectionFailed(f"no server runs on {directory} (SLIPSTREAM_DATA)", sent=False)
    return DEFAULT_URL


@contextlib.contextmanager
def answering(
    as_json: bool, exit_code: Callable[[Exception], int | None], advice: Callable[[Exception], str] = lambda _: ""
) -> Iterator[Output]:
    """The whole of a command: what it raises becomes one clear line and an exit code, as far as there is one for it."""
    # Python has none where they were closed.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    output = Output(as_json=as_json)
    try:
        yield output
    except KeyboardInterrupt:
        output.note("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as raised:
        error = _alone(raised)
        if isinstance(error, OSError):
            sys.stdout = None  # Python would complain once more when it flushes at the end
        if isinstance(error, BrokenPipeError):
            return  # whoever read this has seen enough
        code = exit_code(error)
        if code is None:
            raise
        output.err.print(f"[bold red]Error:[/] {escape(str(error))}{advice(error)}")
        sys.exit(code)


def _alone(error: Exception) -> Exception:
    """Tasks that run side by side fail as a group; what the first of them says is enough."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def client_exit_code(error: Exception) -> int | None:
    """For what a client of a server raises."""
    from slipstream import client  # noqa: PLC0415

    if isinstance(error, client.SlipstreamError) and _is_of_a_stranger(error):
        return UNREACHABLE
    if isinstance(error, client.InvalidArgument) and not error.status:
        return 2  # the client refused it, and asked no server
    codes: list[tuple[type[Exception], int]] = [
        (client.NotFound, NOT_FOUND),
        (client.Conflict, CONFLICT),
        (client.Overloaded, OVERLOADED),
        (client.Unavailable, UNREACHABLE),
        (client.ConnectionFailed, UNREACHABLE),
        (client.SlipstreamError, 1),
        (OSError, 1),  # a disk that is full, most of all
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), None)


def _is_of_a_stranger(error: SlipstreamError) -> bool:
    """Return whether something answered that is not a Slipstream broker: brokers name each refusal with a code."""
    status = error.status
    return not error.code and (0 < status < HTTPStatus.BAD_REQUEST or status in (404, 405))


def client_advice(error: Exception) -> str:
    from slipstream import client  # noqa: PLC0415

    if isinstance(error, client.ConnectionFailed) and not error.sent:
        return "\n[dim]Start one with: slipstream serve; or name another with --server[/]"
    if isinstance(error, client.OffsetOutOfRange):
        return f"\n[dim]Read on with: --from {error.earliest_offset}[/]"
    return ""
