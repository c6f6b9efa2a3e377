"""`GET /v2/openapi.json`: made from the endpoints and the types that decode requests."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from slipstream import __version__
from slipstream.api import (
    ErrorResponse,
    commits,
    consume,
    dead_letters,
    errors,
    events,
    groups,
    jobs,
    keys,
    offsets,
    once,
    overview,
    produce,
    read,
    segments,
    server,
    slips,
    tables,
    topics,
)
from slipstream.api.media import JSON, MSGPACK
from slipstream.broker import envelope
from slipstream.server.v2 import events as server_events
from slipstream.server.v2.endpoint import Endpoint
from slipstream.server.v2.endpoints import CONSOLE, ENDPOINTS

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::(\w+))?}")


@cache
def openapi() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    types = [each for endpoint in ENDPOINTS for each in (endpoint.body, endpoint.query, endpoint.answer) if each]
    references, components = msgspec.json.schema_components([*types, ErrorResponse], ref_template=_REFERENCE)
    schemas = dict(zip(map(str, types), references, strict=False))
    _describe_fields(components)
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Slipstream",
            "version": __version__,
            "description": (
                "Bodies are JSON, or MessagePack with Content-Type: application/msgpack. In MessagePack keys and "
                "values are bytes; in JSON they are text, or base64 with `encoding` beside them."
            ),
        },
        "paths": paths,
        "components": {"schemas": components},
    }


_DESCRIBED = (
    commits,
    consume,
    dead_letters,
    errors,
    events,
    groups,
    jobs,
    keys,
    offsets,
    once,
    overview,
    produce,
    read,
    segments,
    server,
    slips,
    tables,
    topics,
    envelope,
    server_events,
)


def _describe_fields(components: dict[str, Any]) -> None:
    """Adds what stands under the fields in the source, which Python itself throws away."""
    for module in _DESCRIBED:
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            texts = dict(_field_texts(node))
            for name, component in components.items():
                if name.split("_")[0] == node.name:
                    for field, schema in component.get("properties", {}).items():
                        if field in texts:
                            schema.setdefault("description", texts[field])


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id.rstrip("_"), inspect.cleandoc(str(text.value.value))


def _operation(endpoint: Endpoint, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = "_".join([endpoint.method.lower(), *re.findall(r"\w+", _PARAMETER.sub(r"\1", endpoint.path))[1:]])
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": endpoint.summary,
        "responses": _responses(endpoint, schemas),
    }
    parameters = [
        {
            "name": parameter,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if kind == "natural" else "string"},
        }
        for parameter, kind in _PARAMETER.findall(endpoint.path)
    ]
    if endpoint.query is not None:
        parameters += _query_parameters(endpoint.query, components)
    if endpoint.path == "/v2/produce":
        parameters += [
            {"name": "topic", "in": "query", "schema": {"type": "string"}, "description": _PRODUCE_TOPIC},
            {"name": "idempotency_key", "in": "query", "schema": {"type": "string"}},
        ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        schema = schemas[str(endpoint.body)]
        operation["requestBody"] = {
            "required": True,
            "content": {form: {"schema": schema} for form in _forms(endpoint)},
        }
    return operation


_PRODUCE_TOPIC = "With it the body is a message, an array of messages, or lines of them (application/x-ndjson)."


def _query_parameters(query: Any, components: dict[str, Any]) -> list[dict[str, Any]]:
    component = components[query.__name__]
    required = component.get("required", [])
    found = []
    for name, schema in component["properties"].items():
        description = schema.get("description")
        found.append(
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            | ({"description": description} if description else {})
        )
    return found


def _forms(endpoint: Endpoint) -> tuple[str, ...]:
    """The console speaks with browsers, and JSON only."""
    return (JSON,) if endpoint in CONSOLE else (JSON, MSGPACK)


def _responses(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done" if endpoint.answer is None else "The answer"}
    if endpoint.answer is not None:
        schema = {"schema": schemas[str(endpoint.answer)]}
        own = {
            media_type: schema if media_type.startswith("text/") or media_type == JSON else {}
            for media_type in endpoint.media_types
        }
        forms = dict.fromkeys(_forms(endpoint), schema)
        success["content"] = own if any(m.startswith("text/") for m in endpoint.media_types) else forms | own
    error = {
        "description": "What is wrong",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}},
    }
    return {str(endpoint.status): success, "default": error}
