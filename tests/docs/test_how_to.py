"""The how-to pages: every session on them is typed, with the real parts."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.client import Client
from tests.bus.sites.nats import NatsSite
from tests.bus.sites.site import free_port
from tests.conftest import StartServer
from tests.docs.examples import BIN, examples, program, run_console, run_line, run_page
from tests.docs.following import follow
from tests.docs.pages import HOW_TO, ROOT, blocks, commands
from tests.program import Program
from tests.server_process import ServerProcess

PAGES = sorted(HOW_TO.glob("*.md"))
OWN = {"write-a-worker", "approve-a-step", "move-to-nats", "back-up-and-restore"}
"""They need more than a server, and have a test of their own below."""
UNPACKED = str(ROOT / ".cache" / "nginx" / "usr" / "sbin")
"""Where `make nginx` puts it."""
ON_A_SERVER = [page for page in PAGES if page.stem not in OWN and examples(page)]


@pytest.mark.parametrize("page", ON_A_SERVER, ids=lambda page: page.stem)
def test_the_page_goes_as_it_says(page: Path, server: ServerProcess, tmp_path: Path) -> None:
    run_page(page, server, tmp_path)


def test_the_worker_sends_and_rejects(server: ServerProcess, tmp_path: Path) -> None:
    page = HOW_TO / "write-a-worker.md"
    before, after = blocks(page, "console")
    run_console(before, server)
    with Client(server.base) as client, program(page, "mailer.py", server, tmp_path) as printed:
        while client.groups("mail") == [] or client.group("mail", "mailers").lag:
            time.sleep(0.01)
    assert printed == ["to ada@example - hello"]
    assert f"`{printed[0]}`" in page.read_text()
    run_console(after, server)


def test_a_step_is_approved(tmp_path: Path) -> None:
    page = HOW_TO / "approve-a-step.md"
    (table,), (code,) = blocks(page, "yaml"), blocks(page, "python")
    (tmp_path / "routes.yaml").write_text(table)
    (tmp_path / "shop.py").write_text(code)
    (line,) = re.findall(r"`(slipstream slip run [^`]*)`", page.read_text())
    environment = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    running = Program(["bash", "-c", f"exec {line}"], environment, tmp_path)
    try:
        running.wait_for("at work")
        for command in commands("".join(blocks(page, "console"))):
            follow(command, lambda line: run_line(line, directory=tmp_path), lambda: running.said)
        assert running.stop() == 0
    finally:
        running.kill()


def test_nats_is_looked_at(tmp_path: Path) -> None:
    (command,) = commands("".join(blocks(HOW_TO / "move-to-nats.md", "console")))
    site = NatsSite()
    try:
        output = run_line(command.line.replace("4222", str(site.port)), directory=tmp_path)
        assert without_version(output.replace(str(site.port), "4222")) == without_version(command.output)
    finally:
        site.close()


def without_version(output: str) -> str:
    return re.sub(r"NATS [\d.]+", "NATS", output)


def test_what_was_backed_up_is_there_again(start_server: StartServer, tmp_path: Path) -> None:
    data = tmp_path / "slipstream-data"
    server = start_server(data=data)
    server.create("orders")
    server.produce("orders", "two books")
    server.stop()
    for command in commands("".join(blocks(HOW_TO / "back-up-and-restore.md", "console"))):
        assert run_line(command.line, directory=tmp_path) == command.output, command.line
    restored = start_server(data=data)
    assert [item["value"] for item in restored.take("orders")] == ["two books"]


# The proxy


class Proxy:
    """nginx with what the page shows, in front of a server."""

    def __init__(self, nginx: str, server: ServerProcess, folder: Path) -> None:
        page = HOW_TO / "proxy-with-tls.md"
        self.folder, self.port = folder, free_port()
        (made,) = blocks(page, "sh")
        subprocess.run(["bash", "-ec", made.rpartition("curl ")[0]], cwd=folder, check=True, capture_output=True)
        (shown,) = blocks(page, "nginx")
        shown = shown.replace("listen 8443", f"listen 127.0.0.1:{self.port}")
        shown = shown.replace("/etc/slipstream/", f"{folder}/").replace("http://127.0.0.1:8080", server.base)
        paths = "".join(
            f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        top = f"daemon off; pid {folder}/pid; error_log stderr; user root;\nevents {{}}\n"
        (folder / "nginx.conf").write_text(f"{top}http {{\naccess_log off;\n{paths}{shown}}}\n")
        self.program = Program([nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")])
        self.context = ssl.create_default_context(cafile=str(folder / "cert.pem"))

    def open(self, path: str, body: bytes | None = None, user: str = "ada:secret") -> int:
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", body)
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code


@pytest.fixture
def proxy(server: ServerProcess, tmp_path: Path) -> Iterator[Proxy]:
    nginx = shutil.which("nginx") or shutil.which("nginx", path=UNPACKED)
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("there is no nginx here: make nginx")
    proxy = Proxy(nginx, server, tmp_path)
    try:
        while True:
            try:
                proxy.open("/v1/healthz")
                break
            except urllib.error.URLError:
                assert proxy.program.process.poll() is None, proxy.program.said
        yield proxy
    finally:
        proxy.program.kill()


def test_the_proxy_asks_for_a_password_and_passes_on_all_else(proxy: Proxy, server: ServerProcess) -> None:
    assert proxy.open("/v1/healthz", user="ada:guessed") == 401
    assert proxy.open("/v1/healthz") == 200
    assert proxy.open("/v1/topics", b'{"name": "orders"}') == 201
    batch = json.dumps([{"value": "x" * 100_000}] * 100).encode()
    assert proxy.open("/v2/produce?topic=orders", batch) == 200


def test_the_client_and_its_streams_go_through_the_proxy(proxy: Proxy, tmp_path: Path) -> None:
    """A message comes when it is there, and not when a buffer is full."""
    environment = os.environ | {"SSL_CERT_FILE": str(tmp_path / "cert.pem")}
    environment |= {"SLIPSTREAM_URL": f"https://ada:secret@127.0.0.1:{proxy.port}"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "slipstream", *arguments]
        # Not forked: the certificates are read when the client is imported.
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    run("topic", "create", "orders")
    run("produce", "orders", "two books")
    curl = ["curl", "-sN", "--cacert", "cert.pem", "-u", "ada:secret"]
    address = f"https://127.0.0.1:{proxy.port}/v1/consume?topic=orders&group=billing&owner=w1"
    stream = Program([*curl, address], folder=tmp_path)
    try:
        stream.wait_for("two books")
    finally:
        stream.kill()
    assert "two books" in run("read", "orders")


def test_every_page_says_what_you_want_first() -> None:
    for page in PAGES:
        if page.name != "README.md":
            assert "\n\n**You want** " in page.read_text(), page.name
            assert len(page.read_text().splitlines()) < 110, f"{page.name} is no short page any more"
    index = (HOW_TO / "README.md").read_text()
    assert {page.name for page in PAGES} <= {*re.findall(r"\(([\w-]+\.md)\)", index), "README.md"}
