"""Programs that name no engine: the server that runs here, or else the embedded broker."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from slipstream.api.server import ServerInfo
from slipstream.bus import BusSettings, BusUnavailable, discovery, load_settings, open_bus
from slipstream.cli import main
from slipstream.store.lock import DirectoryLock
from tests.client.loop import in_loop
from tests.conftest import StartServer
from tests.server_process import ServerProcess

AWAY = "http://127.0.0.1:9"


def usual(url: str, data: Path) -> BusSettings:
    """Return what is resolved if nothing is set, `url` is the usual address and `data` the usual directory."""
    return discovery.resolved(BusSettings(url=url, data=str(data)), set())


def test_a_url_that_is_set_names_the_server_even_if_it_is_away(tmp_path: Path) -> None:
    settings = load_settings({}, {"SLIPSTREAM_URL": AWAY, "SLIPSTREAM_DATA": str(tmp_path)})
    assert (settings.driver, settings.url) == ("http", AWAY)
    assert load_settings({"url": AWAY}, {}).driver == "http"


def test_the_server_on_the_data_directory_is_found_until_it_stops(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(data=tmp_path)
    where = {"SLIPSTREAM_DATA": str(tmp_path)}
    settings = load_settings({}, where)
    assert (settings.driver, settings.url) == ("http", server.base)
    assert usual(AWAY, tmp_path).url == server.base
    assert CliRunner().invoke(main, ["topic", "list"], env=where).exit_code == 0, "commands of a broker look there too"
    server.crash()
    ended = CliRunner().invoke(main, ["topic", "list"], env=where)
    assert (ended.exit_code, f"no server runs on {tmp_path} (SLIPSTREAM_DATA)" in ended.stderr) == (5, True)
    assert load_settings({}, where).driver == "embedded", "the address that it left in the directory is no server"
    server.start()
    assert load_settings({}, where).url == server.base
    server.stop()
    assert load_settings({}, where).driver == "embedded"


def test_a_broker_at_the_usual_address_is_found(tmp_path: Path, shared: ServerProcess) -> None:
    settings = usual(shared.base, tmp_path)
    assert (settings.driver, settings.url) == ("http", shared.base)


def test_a_directory_that_is_set_is_not_left_for_a_server_elsewhere(tmp_path: Path, shared: ServerProcess) -> None:
    settings = discovery.resolved(BusSettings(url=shared.base, data=str(tmp_path)), {"data"})
    assert (settings.driver, settings.data) == ("embedded", str(tmp_path))


def test_where_nothing_runs_it_is_the_embedded_broker(tmp_path: Path) -> None:
    assert usual(AWAY, tmp_path).driver == "embedded"
    with contextlib.ExitStack() as held:
        lock = DirectoryLock(tmp_path)
        held.callback(lock.release)
        assert usual(AWAY, tmp_path).driver == "embedded", "an application has its broker inside: it has no address"


def test_an_engine_that_is_set_is_taken(tmp_path: Path, start_server: StartServer) -> None:
    start_server(data=tmp_path)
    environment = {"MESSAGE_BUS_DRIVER": "embedded", "SLIPSTREAM_DATA": str(tmp_path)}
    assert load_settings({}, environment).driver == "embedded"


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"\xff",
        msgspec.json.encode(
            ServerInfo(version="1", durability="jetstream", bus="nats", started_ms=1, now_ms=1, writable=True)
        ),
    ],
    ids=["another program", "no text", "a console on NATS"],
)
def test_what_is_no_broker_at_the_usual_address_is_left_alone(tmp_path: Path, body: bytes) -> None:
    with answering(body) as url:
        assert usual(url, tmp_path).driver == "embedded"


def test_a_program_that_says_nothing_at_the_usual_address_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a broker that is busy: another one inside of the program would hide the messages from it."""
    monkeypatch.setattr(discovery, "ANSWER_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BusUnavailable, match=r"accepts connections and does not answer.*MESSAGE_BUS_DRIVER"):
            usual(url, tmp_path)


@in_loop
async def test_settings_that_a_program_has_made_find_the_server(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(data=tmp_path)
    async with open_bus(BusSettings(data=str(tmp_path), prefix="made.")) as bus:
        assert bus.driver == "http"
        await bus.publish("orders", "two books")
    assert [topic["name"] for topic in server.get("/v2/topics").json()["topics"]] == ["made.orders"]


@contextlib.contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A web server that answers everything with the same body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
