"""Manifests: what is taken, and that what is not is refused with where it is wrong and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs.manifest import InvalidManifest, Manifest, decode_manifest, encode_manifest, manifest_of

GOOD: dict[str, Any] = {"id": "a", "url": "https://example.invalid/a"}


def _decode(value: object, max_resources: int = 1000) -> Manifest:
    return decode_manifest(json.dumps(value).encode(), max_resources=max_resources)


def _of(*resources: object, **fields: object) -> dict[str, object]:
    return {"manifest_version": "v1", "resources": list(resources), **fields}


def test_a_manifest_has_a_version_resources_metadata_and_attributes() -> None:
    resource = {**GOOD, "headers": {"X-Shop": "eu"}, "tags": {"colour": "red"}}
    manifest = _decode(_of(resource, metadata={"crawl": 17}, attributes={"priority": [1, None]}))
    assert manifest.resources[0].headers == {"X-Shop": "eu"}
    assert manifest.resources[0].tags == {"colour": "red"}
    assert manifest.metadata == {"crawl": 17}
    assert manifest.attributes == {"priority": [1, None]}
    assert decode_manifest(encode_manifest(manifest), max_resources=1000) == manifest


def test_the_limits_themselves_are_within_them() -> None:
    headers = {f"x-{number}": "v" * (1024 - 3) for number in range(10)}
    resources = [{"id": f"{number:0>128}", "url": "HTTP://example.invalid"} for number in range(999)]
    assert len(_decode(_of({**GOOD, "headers": headers}, *resources)).resources) == 1000
    assert _decode(_of({**GOOD, "id": "😀" * 128})).resources[0].id == "😀" * 128


BAD: dict[str, tuple[object, str]] = {
    "no resources": (_of(), "0 resources: send 1 to 3"),
    "too many": (_of(*({**GOOD, "id": str(number)} for number in range(4))), "4 resources: send 1 to 3, and more in"),
    "the same id": (_of(GOOD, {**GOOD, "id": "b"}, GOOD), r"resources\[2\].id: 'a' is that of resources\[0\]"),
    "an empty id": (_of({**GOOD, "id": ""}), r"resources\[0\].id: 1 to 128"),
    "a long id": (_of(GOOD, {**GOOD, "id": "x" * 129}), r"resources\[1\].id: 1 to 128"),
    "another scheme": (_of({**GOOD, "url": "ftp://a/b"}), r"resources\[0\].url: .*only http and https"),
    "no scheme": (_of({**GOOD, "url": "//a/b"}), r"resources\[0\].url: .*only http and https"),
    "no host": (_of({**GOOD, "url": "http:///b"}), r"resources\[0\].url: it names no host"),
    "a bad host": (_of({**GOOD, "url": "http://[a/"}), r"resources\[0\].url: this is no URL"),
    "a bad port": (_of({**GOOD, "url": "http://a:99999/"}), r"resources\[0\].url: this is no URL"),
    "a space": (_of({**GOOD, "url": "http://a/b c"}), "escape them"),
    "a long url": (_of({**GOOD, "url": "http://a/" + "x" * 8192}), "longer than 8192"),
    "11 headers": (_of({**GOOD, "headers": {str(n): "" for n in range(11)}}), r"resources\[0\].headers: there are 11"),
    "a long header": (_of({**GOOD, "headers": {"a": "v" * 1024}}), "'a' is longer than 1024 bytes"),
    "a long header in bytes": (_of({**GOOD, "headers": {"a": "ü" * 600}}), "'a' is longer than 1024 bytes"),
    "a smuggled header": (_of({**GOOD, "headers": {"a": "b\r\nc: d"}}), "cannot be sent"),
    "a bad header name": (_of({**GOOD, "headers": {"a b": "c"}}), "cannot be sent"),
    "a header that is a number": (_of({**GOOD, "headers": {"a": 5}}), r"resources\[0\].headers"),
    "a bad checksum": (_of({**GOOD, "checksum": "sha256:no"}), r"resources\[0\].checksum"),
    "a bad mime": (_of({**GOOD, "mime": "a\nb"}), r"resources\[0\].mime: .* such as image/png"),
    "much in tags": (_of({**GOOD, "tags": {"a": "x" * 70_000}}), r"resources\[0\].tags"),
    "much in attributes": (_of(GOOD, attributes={"a": "x" * 70_000}), "attributes: .*send the rest as metadata"),
    "nested attributes": (_of(GOOD, attributes={"a": json.loads("[" * 100 + "]" * 100)}), "attributes: .*flatter"),
    "another version": ({**_of(GOOD), "manifest_version": "v2"}, "'v2' is not known: send \"v1\""),
    "no version": ({"resources": [GOOD]}, "manifest_version"),
    "an unknown field": (_of({**GOOD, "ulr": "x"}), r"resources\[0\]: .*`ulr`"),
    "a url that is a number": (_of({**GOOD, "url": 5}), r"resources\[0\].url: Expected `str`"),
    "a list": ([], "Expected `object`"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_with_its_place(name: str) -> None:
    value, message = BAD[name]
    with pytest.raises(InvalidManifest, match=message):
        _decode(value, max_resources=3)


BYTES = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"manifest_version": "\xff"}',
    "half a surrogate": b'{"manifest_version": "\\ud800"}',
    "lists without end": b'{"manifest_version": "v1", "metadata": {"a": ' + b"[" * 1_000_000,
    "objects without end": b'{"manifest_version": "v1", "metadata": ' + b'{"a":' * 500_000,
    "a number without end": b'{"manifest_version": ' + b"9" * 100_000 + b"}",
    "infinity": b'{"manifest_version": 1e999}',
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_manifest_are_refused(name: str) -> None:
    with pytest.raises(InvalidManifest):
        decode_manifest(BYTES[name], max_resources=10)


@given(st.binary(max_size=300))
def test_whatever_bytes_come_are_a_manifest_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidManifest):
        decode_manifest(data, max_resources=10)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RESOURCE = st.fixed_dictionaries(
    {"id": st.text() | JSON, "url": st.text() | st.text().map("http://{}".format)},
    optional={"headers": JSON, "tags": JSON, "checksum": JSON, "mime": JSON},
)


@given(
    st.fixed_dictionaries(
        {"manifest_version": JSON | st.just("v1"), "resources": st.lists(RESOURCE, max_size=3) | JSON},
        optional={"metadata": JSON, "attributes": JSON},
    )
)
def test_what_is_nearly_a_manifest_is_taken_and_kept_or_refused(value: dict[str, object]) -> None:
    try:
        manifest = manifest_of(value, max_resources=10)
    except InvalidManifest:
        return
    assert decode_manifest(encode_manifest(manifest), max_resources=10) == manifest


def test_what_a_program_cannot_send_as_json_is_refused() -> None:
    with pytest.raises(InvalidManifest, match="as JSON"):
        manifest_of({"metadata": object()}, max_resources=1)
