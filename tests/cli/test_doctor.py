from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.store.node import Node, cut, flip, journals


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    with Node(directory) as node:
        node.create("orders")
        for number in range(3):
            node.produce("orders", b"%d" % number)
    return directory


def doctor(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def damage(directory: Path) -> None:
    flip(journals(directory)[0], 60)


def test_a_healthy_directory_exits_with_0_and_a_summary(data: Path) -> None:
    result = doctor(data)
    assert (result.exit_code, result.output) == (
        0,
        "healthy: 1 journal files, 0 checkpoints, 0 segments, 1 topics, 3 messages, 0 groups\n",
    )


def test_a_torn_tail_exits_with_1(data: Path) -> None:
    path = journals(data)[0]
    cut(path, path.stat().st_size - 1)
    result = doctor(data)
    assert result.exit_code == 1
    assert f"torn: {path} at byte " in result.output
    assert "the broker starts on this" in result.output


def test_damage_exits_with_2_and_says_what_a_repair_would_drop(data: Path) -> None:
    damage(data)
    result = doctor(data)
    assert result.exit_code == 2
    assert f"damage: {journals(data)[0]} at byte 40: the frame does not match its checksum" in result.output
    assert "a repair would drop: 3 messages of the topic with id 1, whose creation is lost" in result.output
    assert "\x1b" not in result.output, "colours only on a terminal"


def test_a_directory_in_use_exits_with_3(data: Path) -> None:
    with Node(data):
        result = doctor(data)
    assert result.exit_code == 3
    assert "is in use by process" in result.output


def test_repair_keeps_a_copy_and_says_where(data: Path) -> None:
    damage(data)
    result = doctor(data, "--repair")
    assert result.exit_code == 0, result.output
    (copy,) = data.parent.glob("data.before-repair-*")
    assert f"the directory as it was: {copy}" in result.output
    assert doctor(data).exit_code == 0
    assert doctor(copy).exit_code == 2


def test_json_for_machines(data: Path) -> None:
    damage(data)
    found = json.loads(doctor(data, "--json").output)
    assert [(finding["severity"], finding["position"]) for finding in found["findings"]] == [("damage", 40)]
    assert found["repairable"] is True
    assert found["copy"] is None
    repaired = json.loads(doctor(data, "--json", "--repair").output)
    assert Path(repaired["copy"]).is_dir()


@pytest.mark.parametrize("files", [[], ["passwd"]])
def test_what_is_no_data_directory_is_not_called_healthy(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    result = CliRunner().invoke(main, ["doctor", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not a data directory" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == files
