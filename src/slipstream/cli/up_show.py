"""How `slipstream up` looks: what is being waited for, what runs where, what crashed, and what the parts say."""

from __future__ import annotations

import abc
import contextlib
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from slipstream.cli.output import WIDE, one_line
from slipstream.cli.unblocked import unblocked
from slipstream.plurals import counted
from slipstream.up.part import Part, PartStatus, State

COLOURS = ("cyan", "green", "magenta", "blue", "bright_cyan", "bright_magenta", "bright_blue")
"""Of names; yellow and red are for trouble."""
SUPERVISOR = "up"
REFRESH_PER_S = 8
HELD_LINES = 20
"""Of a part that has not started yet."""

STYLES: Mapping[State, str] = {
    "running": "green",
    "starting": "dim",
    "waiting": "dim",
    "crashed": "yellow",
    "stopped": "dim",
}


@contextlib.contextmanager
def open_show(parts: Sequence[Part], log_format: str, console_url: str, exports: Mapping[str, str]) -> Iterator[UpShow]:
    """Show the parts on a terminal, in a file or as JSON. A reader that has stopped (Ctrl-S, `less`) is not waited
    for, because the parts would have to wait too. `exports` are the variables for commands in other terminals."""
    with unblocked(sys.stdout) as file:
        if log_format == "json":
            yield UpShow(JsonPage(file, lambda: file.is_behind), parts, console_url, exports, None)
            return
        console = Console(file=file, highlight=False, width=None if file.isatty() else WIDE)
        page = TextPage(console, [part.name for part in parts], lambda: file.is_behind)
        panel = Panel(console, page, parts) if file.isatty() else None
        try:
            yield UpShow(page, parts, console_url, exports, panel)
        finally:
            if panel is not None:
                panel.close()


class Page(abc.ABC):
    """Lines, each of a part. Those that nobody reads are counted."""

    def __init__(self, is_behind: Callable[[], bool]) -> None:
        """`is_behind`: what is written now goes nowhere."""
        self._is_behind = is_behind
        self._missed = 0

    def line(self, name: str, text: str, style: str = "") -> None:
        if self._missed and not self._is_behind():
            missed, self._missed = self._missed, 0
            self._put(SUPERVISOR, f"{counted(missed, 'line')} not shown: what parts say is in their logs", "yellow")
        if not self._is_behind():
            self._put(name, text, style)
        if self._is_behind():
            self._missed += 1

    @abc.abstractmethod
    def _put(self, name: str, text: str, style: str) -> None: ...


class TextPage(Page):
    """`jobs      | what it says`, the name in its colour."""

    def __init__(self, console: Console, names: Sequence[str], is_behind: Callable[[], bool] = lambda: False) -> None:
        super().__init__(is_behind)
        self._console = console
        self.width = max(len(name) for name in (*names, SUPERVISOR))
        self.colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
        self.colours[SUPERVISOR] = "bold"

    def print(self, shown: RenderableType) -> None:
        self._console.print(shown, soft_wrap=True)

    def _put(self, name: str, text: str, style: str) -> None:
        shown = Text(f"{name:<{self.width}} | ", self.colours.get(name, ""))
        shown.append(one_line(text.expandtabs()), style or "default")
        self.print(shown)


class JsonPage(Page):
    """A line of JSON for each of theirs, with the part it is of."""

    def __init__(self, file: TextIO, is_behind: Callable[[], bool] = lambda: False) -> None:
        super().__init__(is_behind)
        self._file = file

    def _put(self, name: str, text: str, style: str) -> None:
        try:
            told = msgspec.json.decode(text)
        except msgspec.DecodeError:
            told = None
        fields = told if isinstance(told, dict) else {"msg": text}
        self._file.write(msgspec.json.encode({"part": name, **fields}).decode() + "\n")


class UpShow:
    """Hears what happens, and puts it into words."""

    def __init__(
        self,
        page: TextPage | JsonPage,
        parts: Sequence[Part],
        console_url: str,
        exports: Mapping[str, str],
        panel: Panel | None,
    ) -> None:
        self._page = page
        self._panel = panel
        self._console_url = console_url
        self._exports = exports
        self._patience = {part.name: part.patience for part in parts}
        self._told: dict[str, tuple[State, str]] = {}
        self._began: dict[str, float] = {}
        self._is_stopping = False
        self._has_started = False
        self._held: dict[str, deque[str]] = {}

    def said(self, name: str, line: str) -> None:
        """On a terminal a part that starts or stops does so in one line; what it says is shown where it fails."""
        state, _ = self._told.get(name, ("waiting", ""))
        if self._panel is not None and (
            self._is_stopping or not self._has_started or state not in {"running", "waiting"}
        ):
            self._held.setdefault(name, deque(maxlen=HELD_LINES)).append(line)
        else:
            self._page.line(name, line)

    def _shown(self, status: PartStatus) -> PartStatus:
        """The console has one address for people: where its page is. That of its process is for the broker."""
        is_page = status.name == "console" and self._console_url
        return replace(status, url=self._console_url) if is_page else status

    def changed(self, status: PartStatus) -> None:
        status = self._shown(status)
        if self._panel is not None:
            self._panel.changed(status)
        before = self._told.get(status.name)
        if before == (status.state, status.reason):
            return
        self._told[status.name] = (status.state, status.reason)
        entered = before is None or before[0] != status.state
        if status.state == "starting" and entered:
            self._began[status.name] = time.monotonic()
            self._held.pop(status.name, None)
        if status.state == "running" and entered:
            self._held.pop(status.name, None)
        if status.reason and status.state in {"crashed", "stopped"}:
            self._show_held(status.name)
        if status.state != "stopped" or status.reason or status.name in self._began:
            self._tell(status, before[0] if before is not None else None)

    def started(self, parts: Sequence[PartStatus]) -> None:
        self._has_started = True
        parts = [self._shown(status) for status in parts]
        for status in parts:
            if status.state == "running":  # how it has started is of no interest when it crashes, some day
                self._held.pop(status.name, None)
        if self._panel is not None:
            self._panel.close()
        if isinstance(self._page, TextPage):
            self._page.print(Group("", where_table(parts, self._page.colours), "", *self._invitation()))
        else:
            missing = ", ".join(status.name for status in parts if status.state != "running")
            self._page.line(SUPERVISOR, f"everything runs but {missing}" if missing else "everything runs")

    def stopping(self, parts: Sequence[PartStatus]) -> None:
        self._is_stopping = True
        running = [status.name for status in parts if status.pid is not None]
        if running:
            self._up(f"stopping {', '.join(running)}; Ctrl-C again kills")
            if self._panel is not None:
                self._panel.reopen(stopping=True)

    def killing(self) -> None:
        self._up("killing everything that is left", "yellow")

    def hidden(self, path: Path, reason: str) -> None:
        self._up(f"{path} cannot be written ({reason}): the console does not see how the parts are", "yellow")

    def killed(self, name: str, after_ms: int) -> None:
        self._show_held(name)
        self._up(f"{name} has not ended after {after_ms / 1000:g} s and is killed", "yellow")

    def _show_held(self, name: str) -> None:
        for line in self._held.pop(name, ()):
            self._page.line(name, line)

    def _tell(self, status: PartStatus, before: State | None) -> None:
        name, reason = status.name, status.reason
        entered = before != status.state
        match status.state:
            case "crashed":
                self._up(f"{name} crashed: {reason}", "yellow")
            case "stopped" if reason:
                self._up(f"{name} cannot run: {reason}", "red")
            case "stopped" if self._is_stopping:
                self._up(f"{name} has stopped")
            case "waiting" if entered and status.pid is not None:
                self._up(f"{name} takes no work: {reason}", "yellow")
            case "running" if before == "waiting":
                self._up(f"{name} takes work again")
            case "running" if status.restarts:
                self._up(f"{name} runs again, after {_counted(status.restarts)}")
            case "running" if self._panel is None:
                took = time.monotonic() - self._began.get(name, time.monotonic())
                self._up(f"{name} is ready at {status.url}, after {took:.1f} s")
            case "starting" if entered and self._panel is None:
                patience = self._patience.get(name, "")
                self._up(f"{name} is started{': ' if patience else ''}{patience}")

    def _invitation(self) -> Iterator[RenderableType]:
        if self._console_url:
            yield Text.assemble("open ", (self._console_url, "bold underline"))
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._exports.items())
        yield Text.assemble("for commands in other terminals: ", (f"export {names}", "bold"))
        yield Text("slipstream demo, in another terminal, gives it something to do; Ctrl-C stops it", "dim")
        yield ""

    def _up(self, text: str, style: str = "") -> None:
        self._page.line(SUPERVISOR, text, style)


class Panel:
    """Below everything else, while something is being waited for: the parts, and how each is."""

    def __init__(self, console: Console, page: TextPage, parts: Sequence[Part]) -> None:
        self._console = console
        self._page = page
        self._patience = {part.name: part.patience for part in parts}
        self._parts: dict[str, PartStatus] = {part.name: PartStatus(name=part.name, url=part.url) for part in parts}
        self._spinner = Spinner("dots", style="cyan")
        self._live: Live | None = None
        self._is_stopping = False
        self.reopen()

    def changed(self, status: PartStatus) -> None:
        self._parts[status.name] = status

    def reopen(self, *, stopping: bool = False) -> None:
        self._is_stopping = stopping
        if self._live is None:
            self._live = Live(
                get_renderable=self._table, console=self._console, refresh_per_second=REFRESH_PER_S, transient=True
            )
            self._live.start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        now_ms = time.time() * 1000
        for name, status in self._parts.items():
            if self._is_stopping:
                mark, state, remark = self._leaving(status)
            else:
                mark, state, remark = self._coming(status, now_ms)
            table.add_row(mark, Text(name, self._page.colours[name]), state, Text(remark, "dim", overflow="ellipsis"))
        return table

    def _coming(self, status: PartStatus, now_ms: float) -> tuple[RenderableType, Text, str]:
        mark: RenderableType = {"running": Text("✓", "green"), "crashed": Text("!", "yellow")}.get(
            status.state, Text("·", "dim")
        )
        remark = status.reason or status.url
        if status.state == "starting":
            mark = self._spinner
            words = ", ".join(text for text in (status.reason, self._patience[status.name]) if text)
            remark = f"{max(0.0, now_ms - status.since_ms) / 1000:.0f} s  {words}"
        return mark, Text(status.state, STYLES[status.state]), remark

    def _leaving(self, status: PartStatus) -> tuple[RenderableType, Text, str]:
        if status.pid is not None:
            return self._spinner, Text("stopping"), ""
        return Text("·", "dim"), Text("stopped", "dim"), ""


def where_table(parts: Sequence[PartStatus], colours: Mapping[str, str]) -> Table:
    """What runs where."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("PART", "WHERE", "STATE"):
        table.add_column(column, no_wrap=True)
    for status in parts:
        state = Text(status.state, "red" if status.state == "stopped" else STYLES[status.state])
        table.add_row(Text(status.name, colours.get(status.name, "")), status.url, state)
    return table


def _counted(restarts: int) -> str:
    return "one restart" if restarts == 1 else f"{restarts} restarts"
