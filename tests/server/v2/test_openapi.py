"""`GET /v2/openapi.json`: made from the types, and true of the server."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from slipstream.server.v2.endpoints import ENDPOINTS
from slipstream.server.v2.openapi import openapi
from tests.server.v2.wire import V2


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if "$ref" in node else set()
        return found.union(*(references(value) for value in node.values()))
    return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()


def test_the_server_shows_the_document(v2: V2) -> None:
    document = v2.call("GET", "/v2/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert document == msgspec.json.decode(msgspec.json.encode(openapi()))


def test_every_call_is_in_it_with_its_parameters() -> None:
    paths = openapi()["paths"]
    for endpoint in ENDPOINTS:
        path = re.sub(r"{(\w+):\w+}", r"{\1}", endpoint.path)
        operation = paths[path][endpoint.method.lower()]
        named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert str(endpoint.status) in operation["responses"]
        assert ("requestBody" in operation) == (endpoint.body is not None)
    assert sum(len(methods) for methods in paths.values()) == len(ENDPOINTS)


def test_every_reference_leads_somewhere() -> None:
    document = openapi()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for methods in openapi()["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_fields_say_what_they_mean() -> None:
    schemas = openapi()["components"]["schemas"]
    assert "no earlier than" in schemas["ProduceMessage_str_"]["properties"]["deliver_at"]["description"]
    assert schemas["FetchRequest"]["properties"]["wait_ms"]["default"] == 0
    assert schemas["FetchRequest"]["additionalProperties"] is False
