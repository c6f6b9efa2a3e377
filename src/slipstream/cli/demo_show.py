"""How `slipstream demo` looks: bars that move, and what became of each scene."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from slipstream.cli.output import Output

if TYPE_CHECKING:
    from slipstream.pipeline.looking import Answer

BAR_WIDTH = 28
CELL_MAX = 56


class DemoShow:
    """A bar for each scene on a terminal; a line at the end of each where nobody looks."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_terminal = sys.stdout.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[remark]}", style="dim"),
            console=output.out,
            disable=not self._is_terminal,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._progress:
            yield

    def say(self, text: str) -> None:
        self._output.out.print(Text(text, "dim"))

    def title(self, text: str) -> None:
        self._output.out.print()
        self._output.out.print(Text(text, "bold"))

    def scene(self, name: str) -> Scene:
        task = self._progress.add_task(f"{name:<10}", total=None, remark="")
        return Scene(self._progress, task, name, None if self._is_terminal else self._output)

    def link(self, what: str, where: str) -> None:
        self._output.out.print(Text.assemble(f"  {what:<38} ", (where, "cyan")), soft_wrap=True)

    def answer(self, question: str, sql: str, answer: Answer) -> None:
        """A question to the tables, and what they say."""
        from slipstream.pipeline.looking.answer import value_text  # noqa: PLC0415

        self.title(question)
        self._output.out.print(Text(sql, "dim"), soft_wrap=True)
        names = [(">" if number else "") + name for name, number in zip(answer.columns, answer.numbers, strict=True)]
        self._output.table(names, [[_cell(value, value_text(value)) for value in row] for row in answer])


def _cell(value: object, text: str) -> str:
    if value is None:
        return "-"
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


class Scene:
    """One bar."""

    def __init__(self, progress: Progress, task: TaskID, name: str, output: Output | None) -> None:
        self.name = name
        self._progress = progress
        self._task = task
        self._output = output
        self._done = (0, 0)

    def tell(self, done: int, total: int) -> None:
        self._done = (done, total)
        self._progress.update(self._task, completed=done, total=total)

    def remark(self, text: str) -> None:
        self._progress.update(self._task, remark=text)

    def ended(self, text: str) -> None:
        """In words, what became of it."""
        done, total = self._done
        self._progress.update(self._task, completed=max(done, 1), total=max(total, 1), remark=text)
        self._progress.stop_task(self._task)
        if self._output is not None:
            self._output.out.print(f"{self.name}: {text}")

    @property
    def so_far(self) -> str:
        done, total = self._done
        return f"{done} of {total}" if total else "nothing"


def counted_words(pairs: Sequence[tuple[int, str]]) -> str:
    """`9 complete, 2 dead letters`: without what there is none of."""
    return ", ".join(f"{number} {words}" for number, words in pairs if number)
