"""Programs in Python as processes that are forked from one that has imported Slipstream.

A short command spends most of its time on the start of Python and its imports, and a test run has hundreds of commands.
A forked process has a pid, signals, streams, an environment and a directory of its own, and is killed like any other.
A test of what a program imports, of the interpreter's options, or of an example for users uses `subprocess` instead.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import IO, Any, Self

Stream = int | IO[Any] | None

PRELOADED = [
    # Not numpy and grpc: they start threads, and a fork does not have the threads of its parent.
    "slipstream.bus.drivers.embedded",
    "slipstream.bus.drivers.http",
    "slipstream.bus.drivers.nats",
    "slipstream.cli.main",
    "slipstream.client",
    "slipstream.console",
    "slipstream.demo",
    "slipstream.health",
    "slipstream.jobs.server",
    "slipstream.jobs.service",
    "slipstream.server",
    "slipstream.slip.oversight",
    "slipstream.telemetry",
    "slipstream.up",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "yaml",
]
_method = multiprocessing.get_context("forkserver")
_method.set_forkserver_preload(PRELOADED)
_one_at_a_time = threading.Lock()
"""`multiprocessing` reads the exit codes of all processes when it starts one, and only one thread may read them."""


def start_early() -> None:
    """Start the process that the others are forked from: a test with an event loop shall not wait for its imports.

    Coverage measures the forked processes, but not that one: they would inherit what it does at its end.
    """
    measured = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        ensure_running()
    finally:
        if measured is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = measured


class Forked:
    """A program that runs, used like `subprocess.Popen` for text; its standard input is empty unless another is given.

    The command is as for `subprocess`: the interpreter, then `-m module`, `-c code` or the path of a script.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        start_new_session: bool = False,
    ) -> None:
        interpreter, *words = map(str, command)
        assert interpreter == sys.executable, f"not a program in Python: {command}"
        self.args = [interpreter, *words]
        self.returncode: int | None = None
        stdin_end, self.stdin = _ends(stdin, 0)
        stdout_end, self.stdout = _ends(stdout, 1)
        stderr_end, self.stderr = _ends(stdout_end if stderr == subprocess.STDOUT else stderr, 2)
        # A connection is how multiprocessing hands over a file descriptor.
        streams = [Connection(end) for end in (stdin_end, stdout_end, stderr_end)]
        self._process = _method.Process(
            target=_run,
            args=(words, dict(os.environ if env is None else env), cwd or Path.cwd(), streams, start_new_session),
            daemon=True,  # terminated when the process of the tests exits
        )
        with _one_at_a_time:
            start_early()
            self._process.start()
        for stream in streams:
            stream.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        with _one_at_a_time:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its exit code is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, typed: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Type a text, wait for the end of the program, which is killed after the timeout, and return what it wrote."""
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_type, self.stdin, typed or "")
            reading = [threads.submit(_read_all, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except BaseException:
                self.kill()  # or the threads would never end
                raise
            out, err = (done.result() for done in reading)
        return out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.wait()


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    typed: str | None = None,
    timeout: float = 60,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it wrote."""
    pipe = subprocess.PIPE
    stdin = subprocess.DEVNULL if typed is None else pipe
    with Forked(command, env=env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe) as program:
        out, err = program.communicate(typed, timeout)
    assert program.returncode is not None
    ended = subprocess.CompletedProcess(program.args, program.returncode, out, err)
    if check:
        assert program.returncode == 0, f"{program.args} ended with {program.returncode}:\n{out}{err}"
    return ended


def _type(stream: IO[str] | None, text: str) -> None:
    if stream is not None:
        with contextlib.suppress(BrokenPipeError), stream:
            stream.write(text)


def _read_all(stream: IO[str] | None) -> str:
    if stream is None:
        return ""
    with stream:
        return stream.read()


def _ends(stream: Stream, number: int) -> tuple[int, IO[str] | None]:
    """Return the program's end of a stream, and ours where it is a pipe."""
    if stream == subprocess.PIPE:
        reader, writer = os.pipe()
        return (writer, os.fdopen(reader)) if number else (reader, os.fdopen(writer, "w"))
    if stream == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if stream is None:
        return os.dup(number), None
    return os.dup(stream if isinstance(stream, int) else stream.fileno()), None


def _run(
    words: list[str], environment: dict[str, str], folder: Path, streams: list[Connection], new_session: bool
) -> None:
    """Run a command in the forked process as the interpreter would, up to its last step: modules are not finalized."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    if new_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    at_once = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if at_once or os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    first, *rest = words
    is_interrupted = False
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    try:
        if first == "-m":
            sys.path.insert(0, str(folder))
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            assert not first.startswith("-"), f"an option of the interpreter is not obeyed here: {first}"
            sys.path.insert(0, str(Path(first).parent))
            sys.argv = words
            runpy.run_path(first, run_name="__main__")
    except KeyboardInterrupt:
        traceback.print_exc()
        is_interrupted = True
    finally:
        atexit._run_exitfuncs()
    if is_interrupted:
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
