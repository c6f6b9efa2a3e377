"""Where `slipstream demo` finds the parts of the platform: those that run already, or a `slipstream up` of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from slipstream.demo.scene import SceneFailed
from slipstream.up import PartsFile, PartStatus, board
from slipstream.up.guard import Guard
from slipstream.up.health import answers
from slipstream.up.plan import HOST, PORTS, READY
from slipstream.up.process import Process

NEEDED = ("jobs", "downloads", "slips")
START_S = 90.0
STOP_S = 60.0
POLL_S = 0.2
LAST_LINES = 15
ANSWER_S = 10.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What runs where."""

    broker: str
    """Empty on NATS."""
    nats: str
    jobs: str
    tables: Path
    pipeline: bool
    """One runs, and keeps the tables up to date."""
    console: str
    """Empty: there is none to look at."""

    @property
    def bus(self) -> dict[str, Any]:
        """As settings of the bus."""
        return {"driver": "http", "url": self.broker} if self.broker else {"driver": "nats", "nats_url": self.nats}


@contextlib.asynccontextmanager
async def found_or_started(data: Path, guard: Guard, say: Callable[[str], None]) -> AsyncIterator[Place]:
    """Raises SceneFailed."""
    tables = Path(os.environ.get("PIPELINE_TABLES", "").strip() or data / "tables")
    path = data / "up" / "parts.json"
    if (known := board.read(path)) is not None:
        say(f"using what `slipstream up` runs (process {known.pid})")
        known = await _until_started(path, known, say)
        yield _place(known.parts, tables)
    elif (place := await _usual(tables)) is not None:
        say(f"using what runs at {place.broker} and {place.jobs}")
        yield place
    else:
        async with _started(data, guard, say) as own:
            yield _place(own.parts, tables)


async def _until_started(path: Path, known: PartsFile, say: Callable[[str], None]) -> PartsFile:
    """Somebody else's, which may just have begun, or end meanwhile."""
    if coming := [part.name for part in known.parts if _is_coming(part)]:
        say(f"waiting for {', '.join(coming)}")
    try:
        async with asyncio.timeout(START_S):
            while any(_is_coming(part) for part in known.parts):
                await asyncio.sleep(POLL_S)
                now = board.read(path)
                if now is None or now.pid != known.pid:
                    raise SceneFailed("`slipstream up` has ended meanwhile: start it again, or run this alone")
                known = now
    except TimeoutError:
        coming = [f"{part.name} ({part.reason or part.state})" for part in known.parts if _is_coming(part)]
        raise SceneFailed(
            f"not all that `slipstream up` runs is ready after {START_S:.0f} s: {', '.join(coming)}. What they say is "
            f"in {path.parent}"
        ) from None
    return known


def _place(parts: list[PartStatus], tables: Path) -> Place:
    by_name = {part.name: part for part in parts}
    if missing := [name for name in NEEDED if name not in by_name or by_name[name].state != "running"]:
        raise SceneFailed(
            f"`slipstream up` runs without {', '.join(missing)}, which this needs: start it with them, or look at why "
            "they do not run"
        )

    def url(name: str) -> str:
        return by_name[name].url if name in by_name else ""

    broker = url("broker")
    shown = broker if broker and "console" in by_name else url("console")
    return Place(
        broker=broker,
        nats=url("nats") or os.environ.get("NATS_URL", "").strip() or f"nats://{HOST}:4222",
        jobs=url("jobs"),
        tables=tables,
        pipeline="pipeline" in by_name,
        console=f"{shown}/console/" if shown else "",
    )


async def _usual(tables: Path) -> Place | None:
    """Find the parts at the usual addresses, or at those of the environment; None if nothing runs there.

    Raises SceneFailed if the broker that SLIPSTREAM_URL names answers without the others: a second platform beside it,
    with other data, is not what the user expects."""
    named = os.environ.get("SLIPSTREAM_URL", "").strip()
    broker = named or _local("broker")
    jobs = os.environ.get("JOBS_URL", "").strip() or _local("jobs")
    asked = [broker + READY, f"{jobs}{READY}", _local("slips") + READY, _local("downloads") + READY]
    answered = await asyncio.gather(*map(answers, asked))
    if named and answered[0] and not all(answered):
        missing = ", ".join(
            url.removesuffix(READY) for url, is_there in zip(asked, answered, strict=True) if not is_there
        )
        raise SceneFailed(
            f"a broker answers at {named} (SLIPSTREAM_URL), and nothing at {missing}: name the data directory of its "
            "`slipstream up` with --data or SLIPSTREAM_DATA, or unset SLIPSTREAM_URL to start another platform"
        )
    if not all(answered):
        return None
    pipeline = await answers(_local("pipeline") + READY)
    has_console = await answers(_local("console") + READY)
    if pipeline and has_console:
        tables = await _tables_of(broker) or tables
    return Place(
        broker=broker,
        nats="",
        jobs=jobs,
        tables=tables,
        pipeline=pipeline,
        console=f"{broker}/console/" if has_console else "",
    )


async def _tables_of(broker: str) -> Path | None:
    """Where that pipeline has its tables, which need not be where ours would be: the console knows."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
        try:
            async with session.get(f"{broker}/v2/tables") as response:
                root = (await response.json()).get("root") if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
    return Path(root) if root else None


def _local(name: str) -> str:
    return f"http://{HOST}:{PORTS[name]}"


@contextlib.asynccontextmanager
async def _started(data: Path, guard: Guard, say: Callable[[str], None]) -> AsyncIterator[PartsFile]:
    """A `slipstream up` of our own, on ports that are free, which ends with us."""
    say(f"nothing runs yet: starting it for this demonstration, with its data in {data}")
    ports = [f"--{name}" for name in ("port", "jobs-port", "slips-port", "downloads-port")]
    command = [
        *("up", "--data", str(data), "--bus", "slipstream", "--without", "pipeline", "--without", "console"),
        *(word for option in ports for word in (option, "0")),
    ]
    async with child(guard, command, os.environ) as (process, said):
        try:
            async with asyncio.timeout(START_S):
                starting = asyncio.create_task(_until_running(data / "up" / "parts.json", process.pid))
                ended = asyncio.create_task(process.ended())
                await asyncio.wait([starting, ended], return_when=asyncio.FIRST_COMPLETED)
                if starting.done() and any(_has_given_up(part) for part in starting.result().parts):
                    await ended  # which it is about to, and says why
                ended.cancel()
            if not process.is_running:
                starting.cancel()
                raise SceneFailed("it could not be started:\n" + "\n".join(said[-LAST_LINES:]))
            yield await starting
        except TimeoutError:
            raise SceneFailed(f"not all of it is ready after {START_S:.0f} s: see the logs in {data / 'up'}") from None
        finally:
            say("stopping what was started for this demonstration")


@contextlib.asynccontextmanager
async def child(
    guard: Guard, arguments: list[str], environment: Mapping[str, str], hear: Callable[[str], None] = lambda _: None
) -> AsyncIterator[tuple[Process, list[str]]]:
    """A command of ours in a process, with the lines that it says; stopped at the end, and never left behind."""
    said: list[str] = []

    def keep(line: bytes) -> None:
        said.append(line.decode(errors="replace").rstrip())
        hear(said[-1])

    process = Process((sys.executable, "-P", "-m", "slipstream", *arguments), environment, guard, keep)
    try:
        yield process, said
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.ended()
        except TimeoutError:
            process.kill()
            await process.ended()


async def _until_running(path: Path, pid: int) -> PartsFile:
    """Until nothing of it is about to start any more."""
    while True:
        known = board.read(path)
        if known is not None and known.pid == pid and not any(_is_coming(part) for part in known.parts):
            return known
        await asyncio.sleep(POLL_S)


def _has_given_up(part: PartStatus) -> bool:
    """Without a broker `slipstream up` does not go on."""
    return part.name == "broker" and part.state == "stopped"


def _is_coming(part: PartStatus) -> bool:
    """The pipeline is waited for when its turn comes."""
    return part.name != "pipeline" and part.state in {"waiting", "starting", "crashed"}
