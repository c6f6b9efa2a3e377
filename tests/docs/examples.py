"""Runs what a page shows against a server: its console sessions and its fragments of Python, in their order.

The pages speak of http://127.0.0.1:8080; here that is wherever the server of the test is. The commands get it as
SLIPSTREAM_URL.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from slipstream.cli import main
from slipstream.client import AsyncClient, Client
from tests.docs.pages import blocks, commands, fences, is_program
from tests.server_process import ServerProcess

URL = "http://127.0.0.1:8080"
BIN = Path(sys.executable).parent


class Example(NamedTuple):
    language: str
    text: str
    output: str
    """Of a fragment: the block of text behind it."""


def examples(page: Path) -> list[Example]:
    """What is to be run, without the programs, which are files of their own."""
    found = fences(page.read_text())
    following = [*found, ("", "")][1:]
    return [
        Example(language, text, after if kind == "text" else "")
        for (language, text), (kind, after) in zip(found, following, strict=True)
        if language == "console" or (language == "python" and not is_program(text))
    ]


def run_page(page: Path, server: ServerProcess, directory: Path | None = None) -> None:
    """All of the page, from top to bottom; names of one fragment are known in the next."""
    namespace: dict[str, object] = {}

    async def run() -> None:
        try:
            for example in examples(page):
                if example.language == "console":
                    run_console(example.text, server, directory)
                else:
                    await run_fragment(example, page, server, namespace)
        finally:
            await _close_clients(namespace)

    asyncio.run(run())


async def _close_clients(namespace: dict[str, object]) -> None:
    for value in namespace.values():
        if isinstance(value, Client):
            value.close()
        elif isinstance(value, AsyncClient):
            await value.close()


def run_console(block: str, server: ServerProcess, directory: Path | None = None) -> None:
    for command in commands(block):
        is_plain = command.line.startswith("slipstream ") and not re.search("[|&<>;]", command.line)
        output = run_command(command.line, server) if is_plain else run_line(command.line, server, directory)
        until = time.monotonic() + 30
        while command.line == "slipstream dlq redrives" and "running" in output and time.monotonic() < until:
            output = run_command(command.line, server)  # it goes on behind the answer that it has begun
        assert plain(output) == plain(command.output), command.line


async def run_fragment(
    example: Example, page: Path, server: ServerProcess | None, namespace: dict[str, object]
) -> None:
    code = example.text if server is None else example.text.replace(URL, server.base)
    compiled = compile(code, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        awaitable = eval(compiled, namespace)
        if inspect.isawaitable(awaitable):
            await awaitable
    assert plain(printed.getvalue()) == plain(example.output), example.text


def run_command(line: str, server: ServerProcess) -> str:
    """What `slipstream …` prints, without a new process: most of the time of a short command is the start of Python."""
    with ThreadPoolExecutor(1) as thread:  # commands may have an event loop of their own
        arguments, environment = shlex.split(line)[1:], {"SLIPSTREAM_URL": server.base}
        return thread.submit(CliRunner().invoke, main, arguments, env=environment).result().output


LEFT_OPEN = """
left_open() {
    exec 3< <(exec curl -sN -m 30 "$1")
    IFS= read -r line <&3 && printf '%s\\n' "$line"
    timeout 1 cat <&3
    kill $!
}
"""
"""`curl -sN -m 1` whose second begins when the first line has come: a busy machine may need it all to connect."""


def run_line(line: str, server: ServerProcess | None = None, directory: Path | None = None) -> str:
    """What a line typed into a shell prints, errors too."""
    line = LEFT_OPEN + line.replace("curl -sN -m 1 ", "left_open ")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM_")}
    environment["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    if server is not None:
        environment["SLIPSTREAM_URL"] = server.base
        line = line.replace(URL, server.base)
    result = subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return result.stdout


_DIFFERENT_EACH_TIME = [
    (r"[ \t]+\n", "\n"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
    (r"\b\d{13}\b", "TIME"),
    (r"\b\d+-[0-9a-f]{11}\b", "TOPIC-ID"),
    (r"\b[0-9a-f]{11}-\d+\b", "REDRIVE-ID"),
    (r"[\w.-]+-\d+-[0-9a-f]{8}\b", "OWNER"),
    (r"(\"\w*(?:_age_ms|idle_ms|_per_s|interval_ms|durationMs|duration_ms)\"): ?[\d.]+", r"\1:N"),
    (r"(\"traceId\"): ?\"[0-9a-f]{32}\"", r"\1:ID"),
    (r"\b[\d.]+ (?:ms|s|min)(?=  | ago)", "DURATION"),  # the table of a command; its columns follow
    (r"[ \t]+", " "),
]


def plain(output: str) -> str:
    """Without what differs from one run to the next: times, numbers that are drawn, the widths of columns."""
    for pattern, instead in _DIFFERENT_EACH_TIME:
        output = re.sub(pattern, instead, output)
    return output.strip()


def run_program(code: str, path: Path) -> str:
    """What a program of a page prints that waits a second for what it is about; here until a line of it is there."""
    waits = "await asyncio.sleep(1)"
    assert code.count(waits) == 1
    path.write_text(code.replace(waits, "await asyncio.to_thread(input)"))
    command = [sys.executable, "-u", path.name]
    with subprocess.Popen(
        command, cwd=path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            rest, error = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, error
    return first + rest


@contextlib.contextmanager
def program(page: Path, name: str, server: ServerProcess, directory: Path) -> Iterator[list[str]]:
    """Runs one of the page's programs, and stops it at the end; then the list has what it printed."""
    (code,) = [block for block in blocks(page, "python") if block.startswith(f"# {name}\n")]
    path = directory / name
    path.write_text(code.replace(URL, server.base))
    process = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    printed: list[str] = []
    try:
        yield printed
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        printed += out.splitlines()
    finally:
        process.kill()
        process.wait()
