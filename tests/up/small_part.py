"""A part for tests: answers its health, writes down what happens to it, and behaves as it is told."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from slipstream.up import Part
from slipstream.up.ports import free_port


def small_part(
    name: str,
    diary: Path,
    *how: str,
    needs: tuple[str, ...] = (),
    hopeless: dict[int, str] | None = None,
    is_vital: bool = False,
) -> Part:
    """`how`: `stubborn` ignores SIGTERM; `parent` has a child in its group; `exit=N` ends at once, and
    `refuse-if-told` with 2 while a file `NAME.refuse` is beside the diary; `slow` is not ready before `NAME.go` is. A
    file `NAME.trouble` lets it take no work, `NAME.dead` be not alive, and `NAME.silent` not answer;
    with `NAME.mute` it answers only that it is alive."""
    port = free_port()
    return Part(
        name=name,
        command=(sys.executable, __file__, name, str(port), str(diary), *how),
        url=f"http://127.0.0.1:{port}",
        health=f"http://127.0.0.1:{port}/health/ready",
        alive=f"http://127.0.0.1:{port}/health/live",
        needs=needs,
        hopeless=hopeless or {},
        is_vital=is_vital,
    )


def main(name: str, port: int, diary: Path, how: list[str]) -> None:
    def write(what: str) -> None:
        with diary.open("a") as file:
            file.write(f"{name} {what} {os.getpid()}\n")

    def stop(number: int, frame: FrameType | None) -> None:
        write("stopped")
        sys.exit(0)

    codes = [int(word.removeprefix("exit=")) for word in how if word.startswith("exit=")]
    if "refuse-if-told" in how and diary.with_name(f"{name}.refuse").exists():
        codes.append(2)
    if codes:
        sys.stderr.write(f"{name} gives up\n")
        sys.exit(codes[0])
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in how else stop)

    def is_told(what: str) -> bool:
        return diary.with_name(f"{name}.{what}").exists()

    def why_not_ready() -> str:
        reasons = {"the bus is away": is_told("trouble"), "its loop stands still": is_told("dead")}
        reasons["no go yet"] = "slow" in how and not is_told("go")
        return next((reason for reason, holds in reasons.items() if holds), "")

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if is_told("silent") or (is_told("mute") and self.path == "/health/ready"):
                self.close_connection = True
                return
            is_well = not (is_told("dead") if self.path == "/health/live" else why_not_ready())
            body = json.dumps({"reason": "" if is_well else why_not_ready()})
            self.send_response(200 if is_well else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library has it
            """Nobody wants to know."""

    if "parent" in how:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        with diary.open("a") as file:
            file.write(f"{name} child {child.pid}\n")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Health)
    write("started")
    print(f"{name} says hello", flush=True)  # noqa: T201
    # Not beside a main thread that sleeps: a signal that another thread receives does not wake it.
    server.serve_forever(0.01)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
