"""Builds the server of the Pub/Sub tests, once a checkout: `python -m tests.bus.sites.pubsub_server.build`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

MAIN = Path(__file__).parent / "main.go"
BINARY = Path(__file__).parents[4] / ".cache" / "pubsub-server" / "pubsub-server"
BUILT_FROM = BINARY.with_suffix(".source")
GOPATH = Path("/usr/share/gocode")
"""Where Debian puts the sources of its Go packages. There is no other place they could come from without a network."""
PSTEST = GOPATH / "src/cloud.google.com/go/pubsub/pstest"


class Missing(Exception):
    """It cannot be built here; the message says what is missing."""


def server() -> Path:
    """The program, which is built if it is not there or `main.go` is not what it was built from."""
    if _is_built():
        return BINARY
    go = _go()
    missing = [
        package for package, there in (("golang-go", go), ("golang-google-cloud-dev", PSTEST.exists())) if not there
    ]
    if go is None or missing:
        raise Missing(f"the Pub/Sub server of the tests cannot be built without: {' '.join(missing)} (Debian packages)")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    with BINARY.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes start at the same time
        if not _is_built():
            _build(go)
    return BINARY


def _go() -> str | None:
    """Return Debian's Go, which knows Debian's sources: a newer one that is first on the path need not."""
    return shutil.which("go", path="/usr/lib/go/bin") or shutil.which("go")


def _is_built() -> bool:
    return BINARY.exists() and BUILT_FROM.exists() and BUILT_FROM.read_text() == _source()


def _source() -> str:
    return hashlib.sha256(MAIN.read_bytes()).hexdigest()


def _build(go: str) -> None:
    source = _source()
    half_done = BINARY.with_suffix(".new")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": str(GOPATH), "GOFLAGS": ""}
    done = subprocess.run(
        [go, "build", "-o", half_done, MAIN], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"the Pub/Sub server of the tests was not built: {done.stderr.strip()}")
    half_done.rename(BINARY)
    BUILT_FROM.write_text(source)


if __name__ == "__main__":
    try:
        server()
    except Missing as missing:
        sys.exit(str(missing))
