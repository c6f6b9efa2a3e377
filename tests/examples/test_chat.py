"""The chat is run as a user would run it: on one engine after the other, with rules, and with a model behind HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from slipstream.slip import open_store
from tests.bus.sites.site import Site, free_port
from tests.client.loop import in_loop
from tests.forked import run

CHAT = Path(__file__).parents[2] / "examples" / "chat"
APP = [sys.executable, str(CHAT / "app.py")]

RESET = (
    "To reset Brindle, hold the round button for ten seconds until the ring turns white. "
    "A reset forgets the network and keeps the schedules."
)


def environment(directory: Path, **given: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CHAT_", "SLIP", "MESSAGE_"))}
    ours = {"SLIP_STORE": str(directory / "slips.db"), "SLIP_RETRY_BASE_MS": "10", "CHAT_TERMINAL": "test"}
    return {**plain, "SLIPSTREAM_DATA": str(directory / "data"), **ours, **given}


def chat(directory: Path, *question: str, typed: str = "", **given: str) -> subprocess.CompletedProcess[str]:
    return run([*APP, *question], env=environment(directory, **given), typed=typed)


# With rules


def test_it_answers_on_every_engine_the_first_time_and_the_second(site: Site, tmp_path: Path) -> None:
    engine = site.environment() | {"BUS_PREFIX": f"chat-{uuid.uuid4().hex[:8]}."}
    ended = chat(tmp_path, "how do I reset it?", **engine)
    assert (ended.stdout, ended.stderr, ended.returncode) == (f"{RESET} (see: Reset)\n", "", 0)
    ended = chat(tmp_path, "how do I reset it?", CHAT_STREAM="1", **engine)
    if site.orders:
        assert ended.stdout.splitlines() == [RESET, f"{RESET} (see: Reset)"], "the pieces as they come, then the whole"
    else:
        assert ended.stdout.endswith(f"{RESET} (see: Reset)\n"), "the pieces in any order, then the whole"
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_without_arguments_it_answers_line_by_line(tmp_path: Path) -> None:
    ended = chat(tmp_path, typed="hello\n\nhow long is the warranty?\n")
    assert ended.returncode == 0
    first, second = ended.stdout.splitlines()
    assert first == "Hello. Ask me about Brindle."
    assert second.endswith("(see: Warranty)")
    assert ended.stderr == "no answer: intent: rejected: a message without words\n"


def test_a_guest_gets_no_documents(tmp_path: Path) -> None:
    for given in ({"CHAT_USER": ""}, {"CHAT_MEMORY": "0"}):
        assert chat(tmp_path, "how do I reset it?", **given).stdout.startswith("I do not know.")


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        APP,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Hello. Ask me about Brindle.\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


# With a model


class Endpoint:
    """Answers as it is told to, one after the other, the last for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status != 200:
            return web.Response(status=status, text="not now")
        if not self.asked[-1]["stream"]:
            return web.json_response({"choices": [{"message": {"content": "Hold the button."}}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in ("Hold ", "the ", "button."):
            await response.write(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % piece.encode())
        await response.write(b"data: [DONE]\n\n")
        return response


@contextlib.asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    endpoint.url = f"http://127.0.0.1:{port}/v1"
    yield endpoint
    await runner.cleanup()


async def ask(endpoint: Endpoint, directory: Path, **given: str) -> subprocess.CompletedProcess[str]:
    async with serving(endpoint):
        return await asyncio.to_thread(
            chat, directory, "how do I reset it?", CHAT_MODEL_URL=endpoint.url, CHAT_MODEL_NAME="parrot", **given
        )


@in_loop
async def test_the_model_is_asked_with_what_was_found(tmp_path: Path) -> None:
    endpoint = Endpoint(200)
    ended = await ask(endpoint, tmp_path)
    assert (ended.stdout, ended.stderr) == ("Hold the button. (see: Reset)\n", "")
    (asked,) = endpoint.asked
    assert asked["model"] == "parrot"
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert RESET in asked["messages"][0]["content"]


@in_loop
async def test_a_model_that_has_no_time_is_asked_again(tmp_path: Path) -> None:
    endpoint = Endpoint(429, 503, 200)
    ended = await ask(endpoint, tmp_path)
    assert (ended.stdout, ended.stderr) == ("Hold the button. (see: Reset)\n", "")
    assert len(endpoint.asked) == 3
    async with open_store(str(tmp_path / "slips.db")) as store:
        (slip,) = await store.tracked()
        told = b"\n".join(await store.history(slip.slip)).decode()
    assert (slip.state, slip.ended) == ("completed", True)
    assert told.count('"kind":"retried"') == 2
    assert '"code":"model_busy"' in told


@in_loop
async def test_the_pieces_of_a_model_are_put_together(tmp_path: Path) -> None:
    ended = await ask(Endpoint(429, 200), tmp_path, CHAT_STREAM="1")
    assert ended.stdout.splitlines() == ["Hold the button.", "Hold the button. (see: Reset)"]


@in_loop
async def test_a_model_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    endpoint = Endpoint(401)
    ended = await ask(endpoint, tmp_path)
    assert (ended.stdout, ended.stderr) == ("", "no answer: reply: model_refused: 401: not now\n")
    assert (ended.returncode, len(endpoint.asked)) == (1, 1)


def test_a_model_that_is_never_there_leaves_a_dead_letter(tmp_path: Path) -> None:
    ended = chat(tmp_path, "how do I reset it?", CHAT_MODEL_URL=f"http://127.0.0.1:{free_port()}/v1")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("no answer: reply: model_away: Cannot connect")
