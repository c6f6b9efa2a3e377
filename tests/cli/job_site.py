"""Download jobs as an operator has them: processes of the command line, and a web server that they download from."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.program import Program

READY = r"taking jobs at (http://[^ ]+)/jobs|a worker of \d+ downloads at a time on the"
OURS = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "NATS_", "PUBSUB_", "JOBS_")


class Web:
    """`/ok/…` is there, `/gone/…` is not; `/slow/…` waits until `go` is set, `/later/…` is not there before, and
    `/part/…` sends the second half of 2,000,000 bytes then."""

    def __init__(self) -> None:
        self.go = threading.Event()
        web = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):  # a job that is cancelled drops its downloads
                    super().handle_one_request()

            def do_GET(self) -> None:
                if self.path.startswith("/part/"):
                    self.send_response(200)
                    self.send_header("content-length", "2000000")
                    self.end_headers()
                    self.wfile.write(bytes(1_000_000))
                    web.go.wait(60)
                    self.wfile.write(bytes(1_000_000))
                    return
                if self.path.startswith("/slow/"):
                    web.go.wait(60)
                found = self.path.startswith(("/ok/", "/slow/")) or (
                    self.path.startswith("/later/") and web.go.is_set()
                )
                body = f"this is {self.path}".encode() if found else b""
                self.send_response(200 if found else 404)
                self.send_header("content-type", "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library calls it
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def web_server() -> Iterator[Web]:
    made = Web()
    try:
        yield made
    finally:
        made.close()


class Process(Program):
    """`slipstream …` that runs until it is told to end."""

    url = ""

    def await_ready(self) -> None:
        self.url = self.wait_for(READY)[1] or ""

    def stop(self) -> int:
        """It ends well, and without a traceback."""
        code = super().stop()
        assert (code, "Traceback" in self.said) == (0, False), self.said
        return code


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """Without any bus or store but those of the directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    jobs = {
        "MESSAGE_BUS_DRIVER": "embedded",
        "SLIPSTREAM_DATA": str(directory / "data"),
        "JOBS_STORAGE": str(directory / "objects"),
        "JOBS_LEDGER": str(directory / "jobs.db"),
        "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
        "JOBS_RETRY_BASE_MS": "10",
        "JOBS_STATUS_INTERVAL_MS": "20",
        "NO_COLOR": "1",
    }
    return {**kept, **jobs, **variables}


@contextlib.contextmanager
def running(directory: Path, *arguments: str, **variables: str) -> Iterator[Process]:
    """`slipstream jobs …`, ready for work; killed at the end unless it was stopped."""
    started = Process(
        [sys.executable, "-m", "slipstream", "jobs", *arguments], environment(directory, **variables), directory
    )
    try:
        started.await_ready()
        yield started
    finally:
        started.kill()


class Jobs:
    """`slipstream jobs …` on one service. Each fails where the exit code is not the one that was expected."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *arguments: str, expect: int = 0, stdin: str | None = None, **variables: str) -> Result:
        given = {"JOBS_URL": self.url, "NO_COLOR": "1", **variables}
        result = CliRunner().invoke(main, ["jobs", *arguments], input=stdin, env=given)
        assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def said(self, *arguments: str, **how: Any) -> str:
        return self.run(*arguments, **how).stdout

    def refused(self, *arguments: str, expect: int, **how: Any) -> str:
        """On one line, but for the frame that is drawn around it."""
        result = self.run(*arguments, expect=expect, **how)
        assert "Traceback" not in result.output
        return " ".join(result.stderr.replace("│", " ").split())

    def json(self, *arguments: str, **how: Any) -> Any:
        (found,) = self.lines(*arguments, **how)
        return found

    def lines(self, *arguments: str, **how: Any) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json", **how).stdout.splitlines()]

    def submit(self, *urls: str, job_type: str = "photos") -> str:
        given = list(urls)
        job_id: str = self.json("submit", "--type", job_type, *given)["job_id"]
        return job_id


def until(question: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer
