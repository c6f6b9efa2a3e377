"""Things that are named as `module:name`."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream import references


def test_what_is_named_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_for_references.py").write_text("class Orders:\n    worker = 17\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [""])
    assert references.find("shop_for_references:Orders.worker") == 17


@pytest.mark.parametrize("reference", ["", "shop", "shop:", ":worker", ":"])
def test_what_is_no_reference_is_told_so(reference: str) -> None:
    with pytest.raises(references.NotFound, match="is no module:name"):
        references.find(reference)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("no_such_module:worker", "ModuleNotFoundError"),
        ("json:no_such_name", "AttributeError"),
        ("broken_for_references:worker", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_imported_is_told_why(
    reference: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_for_references.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    with pytest.raises(references.NotFound, match=reason):
        references.find(reference)
