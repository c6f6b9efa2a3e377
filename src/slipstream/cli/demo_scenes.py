"""The scenes of `slipstream demo`, one after the other, and what is said about each."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from slipstream.bus import Bus, open_bus
from slipstream.cli.demo_place import Place, found_or_started
from slipstream.cli.demo_show import DemoShow, Scene, counted_words
from slipstream.cli.output import Output
from slipstream.client import AsyncClient
from slipstream.demo.downloads import Downloads, download
from slipstream.demo.orders import TOPIC, Orders, bill, redrive
from slipstream.demo.scene import SceneFailed
from slipstream.demo.slips import Slips, send
from slipstream.demo.web import HOST, Web, write_files
from slipstream.extras import install_command, is_installed
from slipstream.jobs.client import JobsClient
from slipstream.up.guard import Guard
from slipstream.up.plan import PORTS

SCENE_S = 60.0

T = TypeVar("T")


async def play(output: Output, data: Path, *, with_pipeline: bool) -> None:
    """Raises SceneFailed, and what clients raise."""
    show, guard = DemoShow(output), Guard()
    run = f"demo-{secrets.token_hex(3)}"
    if with_pipeline and not is_installed("pipeline"):
        show.say(f"there will be no tables; to add them: {install_command('pipeline')}")
        with_pipeline = False
    try:
        async with found_or_started(data, guard, show.say) as place:
            client = AsyncClient(place.broker) if place.broker else None
            try:
                with show.running():
                    downloads, slips, orders = await _act(show, place, client, data, run)
                    if with_pipeline:
                        from slipstream.cli.demo_tables import make_tables, show_tables  # noqa: PLC0415 - if installed

                        await make_tables(show.scene("pipeline"), guard, place, downloads, slips)
                    if client is not None and orders is not None:
                        await _redrive(show.scene("redrive"), client, run, orders)
            finally:
                if client is not None:
                    await client.close()
            if with_pipeline:
                await show_tables(show, place, run)
            _say_where(show, place, data, downloads, slips)
    finally:
        guard.close()


async def _act(
    show: DemoShow, place: Place, client: AsyncClient | None, data: Path, run: str
) -> tuple[Downloads, Slips, Orders | None]:
    """Three scenes at a time."""
    files = write_files(data / "demo")
    web = Web(files[0].parent)
    try:
        async with (
            web.serving(),
            JobsClient(place.jobs, os.environ.get("JOBS_TOKEN", "")) as jobs,
            open_bus(**place.bus) as bus,
            asyncio.TaskGroup() as tasks,
        ):
            downloading = tasks.create_task(_download(show.scene("downloads"), jobs, web, files, run))
            sending = tasks.create_task(_send(show.scene("slips"), bus, f"{web.url}/fine/{files[0].name}", run))
            billing = None if client is None else tasks.create_task(_bill(show.scene("orders"), client, run))
    except OSError as error:
        if web.url:
            raise
        raise SceneFailed(
            f"the web server of the demonstration cannot listen at {HOST}: {error.strerror}. On Linux this machine has "
            f"that address; elsewhere add it to the loopback interface"
        ) from error
    return downloading.result(), sending.result(), None if billing is None else billing.result()


async def within(scene: Scene, work: Awaitable[T], limit_s: float = SCENE_S) -> T:
    """Raises SceneFailed where it takes too long."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise SceneFailed(
            f"{scene.name}: {scene.so_far} done after {limit_s:.0f} s. What the parts say about it is in the directory "
            "`up` of the data"
        ) from None


async def _download(scene: Scene, jobs: JobsClient, web: Web, files: list[Path], run: str) -> Downloads:
    found = await within(scene, download(jobs, web, files, run, scene.tell))
    facts = [(found.stored, "stored"), (found.retried, "of them after a retry"), (found.failed, "could not be had")]
    scene.ended(counted_words(facts))
    return found


async def _send(scene: Scene, bus: Bus, attachment: str, run: str) -> Slips:
    found = await within(scene, send(bus, run, attachment, scene.tell))
    facts = [
        (len(found.having("completed")), "complete"),
        (len(found.having("retried")), "retried"),
        (len(found.having("dead-lettered")), "dead letters"),
        (len(found.having("compensated")), "undone"),
        (len(found.having("waiting")), "waits for you"),
    ]
    scene.ended(counted_words(facts))
    return found


async def _bill(scene: Scene, client: AsyncClient, run: str) -> Orders:
    found = await within(scene, bill(client, run, scene.tell))
    scene.ended(f"{found.billed} billed, two dead letters in {found.letter.topic}")
    return found


async def _redrive(scene: Scene, client: AsyncClient, run: str, orders: Orders) -> None:
    order = await within(scene, redrive(client, run, orders.letter, scene.tell))
    scene.ended(f"a dead letter was sent back, and order {order['number']} is billed; the other is left for you")


def _say_where(show: DemoShow, place: Place, data: Path, downloads: Downloads, slips: Slips) -> None:
    console = place.console or f"http://127.0.0.1:{PORTS['broker']}/console/"
    show.title("Where to look")
    show.link("how everything is", console)
    show.link("the refund that waits for you", f"{console}#/slips/{slips.waiting}")
    show.link("a chat message that was retried", f"{console}#/slips/{slips.retried}")
    show.link("one that led to a download", f"{console}#/slips/{slips.traced}")
    show.link("one that nobody can answer", f"{console}#/slips/{slips.poison}")
    show.link("a refund that was undone", f"{console}#/slips/{slips.undone}")
    show.link("a job of which not all could be had", f"{console}#/jobs/{downloads.partial.job_id}")
    if place.broker:
        show.link("a dead letter to look at, or send back", f"{console}#/dead-letters?topic={TOPIC}")
    show.link("the tables, and the plots", f"{console}#/pipeline")
    if not place.console:
        bus = "" if place.broker else " --bus nats"
        show.say(f"there, once it runs: slipstream up --data {data}{bus}")
