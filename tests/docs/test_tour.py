"""The tour works beside `slipstream up`: every command of it that needs no other engine and no Spark."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.platform import plain_environment, platform
from tests.docs.pages import TOUR, blocks
from tests.forked import run
from tests.program import Program


def test_every_command_works_beside_up(tmp_path: Path) -> None:
    here = tmp_path / "another directory"
    here.mkdir()
    for text in blocks(TOUR, "python"):
        if name := re.match(r"# (\w+\.py)\n", text):
            (here / name[1]).write_text(text)
    with platform(tmp_path / "slipstream-data", "--without", "pipeline", "--without", "console") as up:
        up.wait_for("slipstream demo, in another terminal")
        exported = re.search(r"for commands in other terminals: export (.*)", up.said)
        assert exported is not None
        where = dict(pair.split("=", 1) for pair in shlex.split(exported[1]))
        environment = plain_environment(NO_COLOR="1", COLUMNS="200", **where)
        slipstream = [sys.executable, "-m", "slipstream"]

        def said(*command: str, expect: int = 0, more: Mapping[str, str] | None = None) -> str:
            ended = run(list(command), env={**environment, **(more or {})}, cwd=here)
            assert ended.returncode == expect, f"{command}\n{ended.stdout}{ended.stderr}\n{up.said}"
            return ended.stdout + ended.stderr

        shown = TOUR.read_text()
        for command in ("bus tap 'parcels*'", "bus doctor", "jobs run", "jobs dlq list", "jobs replay --code"):
            assert f"\nslipstream {command}" in shown, "what is run here stands on the page"

        tap = Program([*slipstream, "bus", "tap", "parcels*", "--limit", "1", "--json"], environment, here)
        try:
            tap.wait_for(r"listening to parcels\*")
            assert said(sys.executable, "shipping.py") == "shipping two books to Bremen\n"
            assert tap.wait() == 0
            assert json.loads(tap.lines[-1])["attributes"]["city"] == "Bremen"
        finally:
            tap.kill()
        over_http = {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": up.part("broker").url}
        assert said(sys.executable, "shipping.py", more=over_http) == "shipping two books to Bremen\n"
        assert "http is well" in said(*slipstream, "bus", "doctor")

        assert said(sys.executable, "greet.py") == "hello, Ada\n"
        store = re.search(r'SlipSettings\(store="(.*)"\)', (here / "greet.py").read_text())
        assert store is not None
        greeted = said(*slipstream, "slip", "list", "--store", store[1], "--json")
        assert json.loads(greeted)["state"] == "completed"
        assert said(*slipstream, "slip", "list", "--json") == "", "the router of `up` has seen none of it"

        port = {"JOBS_PORT": up.part("jobs").url.rpartition(":")[2]}
        assert "use it with `slipstream jobs submit`" in said(*slipstream, "jobs", "run", expect=2, more=port)
        urls = re.findall(r"http://192\.0\.2\.7/\S+", shown)
        assert "failed: 0 of 2" in said(*slipstream, "jobs", "submit", "--type", "photos", *urls, "--watch", expect=1)
        assert said(*slipstream, "jobs", "dlq", "list").count("DOWNLOAD_FORBIDDEN_ADDRESS") == len(urls)
        assert "0 dead letters" in said(*slipstream, "jobs", "replay", "--code", "DOWNLOAD_TIMEOUT")
        assert sorted(path.name for path in here.iterdir()) == ["greet.py", "shipping.py", "slipstream-data"]
        assert [path.name for path in (here / "slipstream-data").glob("*.db")] == ["greetings.db"], (
            "which the page names"
        )
        beside = run([*slipstream, "bus", "doctor"], env=plain_environment(), cwd=tmp_path)
        assert "http is well" in beside.stdout, "in the directory of `up` nothing needs to be exported"
