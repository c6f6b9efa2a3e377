"""What operations say of `slipstream up` is what there is."""

from __future__ import annotations

from pathlib import Path

from slipstream.cli.main import main
from slipstream.up.plan import DEMO_NETWORK, PORTS, Choices, plan
from slipstream.up.settings import describe_settings
from tests.docs.pages import ROOT, quoted, rows, section

PAGE = section(ROOT / "docs" / "operations.md", "All parts on one machine")


def test_every_part_is_in_the_table_with_its_command_port_and_option() -> None:
    shown = {cells[0].strip("`"): cells[1:] for cells in rows(PAGE) if cells[0].strip("`") in PORTS}
    found = {part.name: part for part in plan(Choices(data=Path("data"), ports=PORTS), {})}
    assert set(shown) == set(found)
    options = {option for parameter in main.commands["up"].params for option in parameter.opts}
    for name, (command, port, option) in shown.items():
        words = command.split("`")[1].split()[1:]
        started = found[name].command
        assert list(started[started.index("slipstream") + 1 :][: len(words)]) == words
        assert int(port) == PORTS[name]
        assert option.strip("`") in options
        assert found[name].url.endswith(f":{PORTS[name]}")


def test_every_setting_is_in_the_table() -> None:
    shown = [cells for cells in rows(PAGE) if cells[0].startswith("`UP_")]
    assert shown == [[f"`{info.variable}`", str(info.default), info.text] for info in describe_settings()]


def test_the_address_that_downloads_may_reach_is_said() -> None:
    assert DEMO_NETWORK.removesuffix("/32") in PAGE
    assert "JOBS_ALLOW_NETWORKS" in quoted(PAGE)
