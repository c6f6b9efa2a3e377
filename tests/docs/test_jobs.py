"""The pages about download jobs: what they list is what there is, and what they show can be run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from slipstream import jobs
from slipstream.jobs.api.app import create_app
from slipstream.jobs.config import load_config
from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.failure import Code
from slipstream.jobs.handler import JobHandler
from slipstream.jobs.manifest import Manifest, Resource
from slipstream.jobs.metrics import metrics_in, service_metrics_in
from slipstream.jobs.refusal import RefusalCode
from slipstream.jobs.settings import describe_settings
from tests.client.loop import in_loop
from tests.docs.pages import JOBS, PAGES, ROOT, blocks, quoted, rows, section
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory


def first_cells(title: str) -> set[str]:
    return set().union(*(quoted(row[0]) for row in rows(section(JOBS, title))))


def test_every_setting_is_in_the_table_as_it_is() -> None:
    shown = {row[0]: row[1:] for row in rows(section(JOBS, "Settings"))}
    for info in describe_settings():
        default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
        assert shown.pop(f"`{info.variable}`") == [f"`{info.name}`", f"`{default}`" if default else "", info.text]
    assert not shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_speaks_of_a_variable_that_is_not_there(page: Path) -> None:
    there = {info.variable for info in describe_settings()} | {"JOBS_URL"}
    assert set(re.findall(r"(?<![A-Z_])JOBS_[A-Z]+(?:_[A-Z]+)*", page.read_text())) <= there


def test_every_metric_is_in_the_table_and_no_other() -> None:
    registry = CollectorRegistry()
    metrics_in(registry)
    service_metrics_in(registry)
    there = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert first_cells("Metrics") == there


def test_every_failure_code_is_in_the_table_and_no_other() -> None:
    assert first_cells("Failure codes") == {code.value for code in Code}


def test_every_refusal_is_in_the_table_with_its_status() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(section(JOBS, "POST /jobs"))}
    assert {code.value: str(code.status) for code in RefusalCode}.items() <= table.items()


def test_every_field_of_a_manifest_is_in_the_table() -> None:
    told = {cell.removeprefix("… ").strip("`") for cell in (row[0] for row in rows(section(JOBS, "POST /jobs")))}
    assert {*Manifest.__struct_fields__, *Resource.__struct_fields__} <= told


def test_every_public_name_is_in_the_table_and_no_other() -> None:
    assert first_cells("In a program") - {"slipstream.jobs.api.create_app"} == set(jobs.__all__)


@in_loop
async def test_every_route_is_in_the_table(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        routes = [route for route in create_app(lab.service).routes if isinstance(route, Route)]
    there = {
        f"{method} {route.path.replace('{job_id:path}', '{id}')}"
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert first_cells("Operators") == there - {"POST /jobs"}


def test_the_configuration_that_is_shown_can_be_loaded(tmp_path: Path) -> None:
    (text,) = blocks(JOBS, "toml")
    (tmp_path / "jobs.toml").write_text(text)
    config = load_config(str(tmp_path / "jobs.toml"), {})
    assert config.types["photos"].storage == "archive"
    tables = {name: {"urls": pool.urls, "fallbacks": pool.fallbacks} for name, pool in config.proxies.items()}
    assert len(Pools(tables).candidates("eu")) == 3


def test_the_handler_that_is_shown_is_one() -> None:
    (text,) = [block for block in blocks(JOBS, "python") if "class Photos" in block]
    namespace: dict[str, object] = {"__name__": "shop"}
    exec(compile(text, str(JOBS), "exec", dont_inherit=True), namespace)
    handler = namespace["Photos"]
    assert isinstance(handler, type)
    assert issubclass(handler, JobHandler)


@in_loop
async def test_the_manifest_of_curl_is_taken(tmp_path: Path) -> None:
    (line,) = re.findall(r"--data-binary '(.+)'", section(JOBS, "POST /jobs"))
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        manifest = json.dumps(json.loads(line)).replace("http://192.0.2.7/a.png", server.url("/ok/10"))
        accepted = await lab.service.ingress.submit("photos", manifest.encode())
        assert (await lab.ended(accepted.job_id)).state == "completed"


def test_the_program_is_one() -> None:
    (text,) = [block for block in blocks(JOBS, "python") if "asyncio.run" in block]
    compile(text, str(JOBS), "exec")
