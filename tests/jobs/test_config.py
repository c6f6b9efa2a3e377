"""The configuration: a file, the environment over it, and what is refused when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.jobs.config import load_config
from slipstream.jobs.errors import InvalidJobs

FILE = """
[types.photos]
storage = "disk"
key_prefix = "albums"
headers = { "User-Agent" = "crawler" }
proxies = "eu"

[types."my-docs.v2"]

[storages.disk]
url = "/tmp/disk"

[storages.archive]
url = "s3://archive"
options = { region = "eu-west-1" }

[proxies.eu]
urls = ["http://proxy.example:3128"]
fallbacks = ["us", "direct"]

[proxies.us]
urls = ["http://proxy.example:3129"]
"""


def _file(folder: Path, text: str) -> str:
    path = folder / "jobs.toml"
    path.write_text(text)
    return str(path)


def test_without_a_file_every_type_is_taken_as_it_comes() -> None:
    config = load_config("", {})
    assert config.type("photos") is not None
    assert config.type("../up") is None


def test_where_types_are_listed_no_others_are_taken_unless_that_is_said(tmp_path: Path) -> None:
    path = _file(tmp_path, FILE)
    config = load_config(path, {})
    photos = config.type("photos")
    assert photos is not None
    assert (photos.storage, photos.headers, photos.proxies) == ("disk", {"User-Agent": "crawler"}, "eu")
    assert config.type("crawl") is None
    assert load_config(path, {"JOBS__ACCEPT_UNLISTED_TYPES": "true"}).type("crawl") is not None


def test_the_environment_is_over_the_file(tmp_path: Path) -> None:
    config = load_config(
        _file(tmp_path, FILE),
        {
            "JOBS__TYPES__PHOTOS__STORAGE": "archive",
            "JOBS__TYPES__PHOTOS__KEY_PREFIX": "2024",
            "JOBS__TYPES__PHOTOS__HEADERS__USER_AGENT": "another",
            "JOBS__TYPES__PHOTOS__PROXY_FALLBACKS": '["us"]',
            "JOBS__TYPES__MY_DOCS_V2__STORAGE": '"disk"',
            "JOBS__TYPES__NEW__KEY_PREFIX": "2024-01-01",
            "JOBS__STORAGES__ARCHIVE__OPTIONS__REGION": "us-east-1",
            "JOBS__TYPES__PHOTOS__PROXIES": "  ",
            "OTHER__TYPES__PHOTOS__STORAGE": "nowhere",
        },
    )
    photos = config.types["photos"]
    assert (photos.storage, photos.key_prefix, photos.headers) == ("archive", "2024", {"User-Agent": "another"})
    assert (photos.proxies, photos.proxy_fallbacks) == ("eu", ["us"])
    assert config.types["my-docs.v2"].storage == "disk"
    assert config.types["new"].key_prefix == "2024-01-01"
    assert config.storages["archive"].options == {"region": "us-east-1"}


REFUSED = {
    "no TOML": ("[", "is no TOML"),
    "an unknown table": ("[type.photos]", "unknown field `type`"),
    "an unknown field": ("[types.a]\nstorrage = 'x'", "unknown field `storrage`.*types"),
    "an unknown storage": ("[types.a]\nstorage = 'x'", r"types.a.storage: there is no \[storages.x\]"),
    "an unknown pool": ("[types.a]\nproxies = 'x'", r"types.a: there is no \[proxies.x\]"),
    "an unknown fallback of a type": ("[types.a]\nproxy_fallbacks = ['x']", r"types.a: there is no \[proxies.x\]"),
    "an unknown fallback of a pool": (
        "[proxies.eu]\nurls = ['http://a:1']\nfallbacks = ['us']",
        "'eu' falls back on 'us', which is not configured",
    ),
    "a circle": (
        "[proxies.a]\nurls = []\nfallbacks = ['b']\n[proxies.b]\nurls = []\nfallbacks = ['a']",
        "in a circle: a -> b -> a",
    ),
    "a pool on itself": ("[proxies.a]\nurls = []\nfallbacks = ['a']", "in a circle: a -> a"),
    "a pool called direct": ("[proxies.direct]\nurls = ['http://a:1']", "cannot be called 'direct'"),
    "a bad type": ("[types.'../up']", "1 to 64 of A-Z"),
    "a bad prefix": ("[types.a]\nkey_prefix = '../up'", "types.a.key_prefix"),
    "bad metadata": ("[types.a]\nmetadata = { 'a b' = 'c' }", "types.a.metadata: 'a b'"),
    "a storage without a url": ("[storages.a]", "missing required field `url`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    with pytest.raises(InvalidJobs, match=message) as refused:
        load_config(_file(tmp_path, text), {})
    assert "jobs.toml" in str(refused.value)


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobs, match="cannot be read"):
        load_config(str(tmp_path / "nothing.toml"), {})


def test_a_variable_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, FILE)
    for variable in ("JOBS__TYPES__PHOTOS__STORAGE__DEEPER", "JOBS__TYPES__PHOTOS__COLOUR", "JOBS__TYPES"):
        with pytest.raises(InvalidJobs):
            load_config(path, {variable: "x"})
