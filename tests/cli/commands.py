"""Commands run in this process against a real server."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.server_process import ServerProcess


class Commands:
    """`slipstream …` for one server and topic. Each fails where the exit code is not the one that was expected."""

    def __init__(self, server: ServerProcess, topic: str) -> None:
        self.server = server
        self.topic = topic

    def run(self, *arguments: str, expect: int = 0, stdin: str | bytes | None = None) -> Result:
        environment = {"SLIPSTREAM_URL": self.server.base, "NO_COLOR": "1"}
        result = CliRunner().invoke(main, arguments, input=stdin, env=environment)
        assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def said(self, *arguments: str, **how: Any) -> str:
        return self.run(*arguments, **how).stdout

    def json(self, *arguments: str, **how: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **how).stdout)

    def lines(self, *arguments: str, **how: Any) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json", **how).stdout.splitlines()]


@contextlib.contextmanager
def signalled(number: int, when: Callable[[Callable[[], bool]], None]) -> Iterator[None]:
    """Send this process a signal as soon as `when` returns, which is told by a function whether the command still runs.

    The command has to handle the signal by then; nothing is sent once it has ended.
    """
    is_over = threading.Event()

    def send() -> None:
        when(lambda: not is_over.is_set())
        assert not is_over.is_set(), "the command ended before the signal was sent"
        os.kill(os.getpid(), number)

    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(send)
        try:
            yield
        finally:
            is_over.set()
        sent.result()
