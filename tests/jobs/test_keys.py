"""Keys: whatever an id is, its object stays where it belongs, apart from all others."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from obstore.store import LocalStore

from slipstream.jobs.keys import PART_BYTES_MAX, check_prefix, manifest_key, part, resource_key

NASTY = [
    ".",
    "..",
    "...",
    "#1",
    "a#1",
    "a/b",
    "/",
    "//",
    "\\",
    "a\\b",
    "\0",
    "a\0b",
    "",
    " ",
    " a",
    "a ",
    "%",
    "%2E",
    "~",
]
NASTY += [
    "%2e%2e",
    "😀" * 128,
    "😀" * 127 + "😁",
    "x" * 128,
    "x" * 200,
    "x" * 201,
    ".x",
    "a\nb",
    "CON",
    "a:b",
    "é",
    "e\u0301",
]
NASTY += ["%~" + "0" * 64, "a%~", "..%00", "\u202e", "\ufeff", "a*?b"]

TEXT = st.text(max_size=300) | st.sampled_from(NASTY) | st.text("./%~ \\#", max_size=8)


@given(TEXT, TEXT, TEXT)
def test_no_id_leaves_its_place(job_type: str, job_id: str, resource_id: str) -> None:
    for key, place in (
        (manifest_key(job_type, job_id), "manifests"),
        (resource_key("", job_type, job_id, resource_id), "resources"),
        (resource_key("album/one", job_type, job_id, resource_id), "resources/album"),
    ):
        parts = key.split("/")
        assert key.startswith(f"{place}/")
        assert len(parts) == 4
        assert all(0 < len(each.encode()) <= PART_BYTES_MAX for each in parts)
        assert not {".", ".."} & set(parts)
        assert key.isascii()
        assert key.isprintable()
        assert "\\" not in key
        assert "#" not in key


@given(TEXT, TEXT)
@example(".", "%2E")
@example("😀" * 128, "😀" * 127 + "😁")
def test_keys_of_different_ids_differ(one: str, other: str) -> None:
    assert (part(one) == part(other)) == (one == other)


def test_keys_of_all_nasty_ids_differ_and_a_folder_takes_them(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "objects", mkdir=True)
    keys = [resource_key("", "crawl", name, name) for name in NASTY]
    assert len(set(keys)) == len(set(NASTY))
    for key, name in zip(keys, NASTY, strict=True):
        obstore.put(store, key, name.encode())
    for key, name in zip(keys, NASTY, strict=True):
        assert obstore.get(store, key).bytes() == name.encode()
        assert (tmp_path / "objects" / key).read_bytes() == name.encode()
    assert {meta["path"] for page in obstore.list(store) for meta in page} == set(keys)
    assert [path.name for path in tmp_path.iterdir()] == ["objects"]


@pytest.mark.parametrize("prefix", ["album", "/album/", "a/b/c", "2024-01-01", "a b", "x" * 200])
def test_a_plain_prefix_is_taken(prefix: str) -> None:
    assert check_prefix(prefix) == ""
    assert resource_key(prefix, "t", "j", "r") == f"resources/{prefix.strip('/')}/r"


@pytest.mark.parametrize(
    "prefix", ["/", "..", "a/../b", "a/./b", "a//b", ".hidden", "a\\b", "a\0", "ü", "#1", "x" * 201, "x/" * 300, "a\n"]
)
def test_any_other_prefix_is_refused(prefix: str) -> None:
    assert check_prefix(prefix)


@given(TEXT | st.lists(TEXT, max_size=4).map("/".join))
def test_no_prefix_that_is_taken_leaves_its_place(prefix: str) -> None:
    if check_prefix(prefix):
        return
    parts = resource_key(prefix, "t", "j", "r").split("/")
    assert parts[0] == "resources"
    assert parts[-1] == "r"
    assert all(parts)
    assert not {".", ".."} & set(parts)
