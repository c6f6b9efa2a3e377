"""All that the console shows, each part a process of its own: a broker, slips of a shop, download jobs and tables.

def test_an_order_is_shown(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=84)
    page = open_page(site.base, f"#/slips/{order}")
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from slipstream.slip import Control, Envelope, Event, open_store
from tests.background_loop import BackgroundLoop
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import manifest
from tests.pipeline.sample_tables import make_all
from tests.program import Program
from tests.server_process import ServerProcess

ROOT = Path(__file__).parents[3]
SHOP = "tests.console.browser.orders"
TOKEN = "a-token-of-the-operators"


class Site:
    def __init__(
        self,
        base: str,
        broker: ServerProcess,
        jobs_url: str,
        files: HostileServer,
        control: Control,
        background: BackgroundLoop,
    ) -> None:
        self.base = base
        """Where the console is, with everything that it asks for."""
        self.broker = broker
        self.files = files
        """Where jobs download from."""
        self._jobs_url = jobs_url
        self.control = control
        self._background = background
        self._numbers = itertools.count(1)
        self._client = httpx.Client(timeout=30, verify=False)

    def order(self, event_type: str = "order.v1", correlation_id: str = "", **payload: Any) -> str:
        """Sends one to the shop; returns its correlationId."""
        correlation_id = correlation_id or f"order-{next(self._numbers):04}"
        event = Event(Envelope("1", "web-shop", correlation_id), event_type, payload)
        self._background.run(self.control.submit(event))
        return correlation_id

    def pause(self, step: str, reason: str) -> None:
        self._background.run(self.control.pause(step, reason))

    def resume(self, step: str) -> None:
        self._background.run(self.control.resume(step))

    def job(self, paths: Mapping[str, str], *, job_type: str = "catalogue", tenant: str = "") -> str:
        """Downloads these paths of `files`, by resource; returns the id of the job."""
        headers = {"X-Fetchbox-Job-Type": job_type, "Authorization": f"Bearer {TOKEN}"}
        headers |= {"X-Fetchbox-Tenant": tenant} if tenant else {}
        body = manifest({name: path if "://" in path else self.files.url(path) for name, path in paths.items()})
        answer = self._client.post(f"{self._jobs_url}/jobs", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["job_id"]
        return job_id

    def let_go(self) -> None:
        """What is held by `/hold` is answered, now and from now on, until `hold`."""
        self._background.loop.call_soon_threadsafe(self.files.release.set)

    def hold(self) -> None:
        self._background.loop.call_soon_threadsafe(self.files.release.clear)

    def close(self) -> None:
        self._client.close()


@contextlib.contextmanager
def running_site(folder: Path, **variables: str) -> Iterator[Site]:
    """`variables` of the environment are set besides, and win."""
    with contextlib.ExitStack() as stack:
        background = stack.enter_context(BackgroundLoop())
        files = background.enter(hostile_server())
        broker = ServerProcess(folder / "broker")
        stack.callback(broker.kill)
        broker.start()
        store = str(folder / "slips.db")
        environment = _environment(folder, broker.base, store) | variables
        slips = _started(stack, environment, "slip", "run", f"{SHOP}:router", f"{SHOP}:worker")
        jobs = _started(stack, environment, "jobs", "run", "--port", "0")
        make_all(folder / "tables", end=dt.datetime.now(dt.UTC), minutes=60)
        control = Control(background.enter(open_store(store)))
        jobs_url = jobs.wait_for(r"taking jobs at (http://[^ ]+)/jobs")[1]
        slips.wait_for("at work on the")
        console = _started(stack, environment | {"JOBS_URL": jobs_url}, "console", "--port", "0")
        base = console.wait_for(r"(http://127\.0\.0\.1:\d+)")[1]
        site = Site(base, broker, jobs_url, files, control, background)
        stack.callback(site.close)
        yield site


def _environment(folder: Path, broker: str, store: str) -> dict[str, str]:
    ours = ("SLIPSTREAM_", "SLIP_", "JOBS_", "PIPELINE_", "MESSAGE_BUS_")
    outside = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return outside | {
        "MESSAGE_BUS_DRIVER": "http",
        "SLIPSTREAM_URL": broker,
        "SLIP_STORE": store,
        "SLIP_POLL_MS": "50",
        "SLIP_RETRY_BASE_MS": "20",
        "JOBS_LEDGER": str(folder / "jobs.db"),
        "JOBS_STORAGE": str(folder / "objects"),
        "JOBS_STORAGE_SYNC": "false",
        "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
        "JOBS_RETRY_BASE_MS": "10",
        "JOBS_MAX_ATTEMPTS": "2",
        "JOBS_STATUS_INTERVAL_MS": "20",
        "JOBS_TOKEN": TOKEN,
        "PIPELINE_TABLES": str(folder / "tables"),
        "CONSOLE_STATE": str(folder / "console.json"),
    }


def _started(stack: contextlib.ExitStack, environment: Mapping[str, str], *arguments: str) -> Program:
    program = Program([sys.executable, "-m", "slipstream", *arguments], environment, ROOT)
    stack.callback(program.kill)
    return program
