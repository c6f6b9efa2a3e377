"""The JSON Schema of what travels, made from the types that decode it; `schemas/` holds it as files.

Each file stands by itself. What differs between them is only whether there must be a slip: before the router there need
not be one, after it there is, with at least one step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from slipstream.slip.event import Envelope, Event, RoutingStep, Status

DIRECTORY: Final = Path(__file__).parent / "schemas"

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The name of the dialect. Nobody fetches it."""


def schemas() -> dict[str, dict[str, Any]]:
    """By the names of their files without the ending, such as `envelope.v1`."""
    return {
        "ingress.v1": _schema("ingress.v1", Event, "An event on its way to the router, which plans its slip."),
        "event.v1": _planned(_schema("event.v1", Event, "An event on its way along its slip.")),
        "envelope.v1": _planned(_schema("envelope.v1", Envelope, "The envelope of an event that has been planned.")),
        "step.v1": _schema("step.v1", RoutingStep, "One hop of a slip, planned or done."),
    }


def schema_text(schema: dict[str, Any]) -> str:
    """As it stands in its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema(name: str, kind: type, description: str) -> dict[str, Any]:
    (root,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        # Docstrings are for those who read the types, and have their names of fields.
        definition.pop("description", None)
    definitions["Status"]["enum"] = [status.value for status in Status]
    schema = {**definitions.pop(root["$ref"].rpartition("/")[2]), "$defs": dict(sorted(definitions.items()))}
    return {
        "$schema": _DIALECT,
        "$id": f"urn:slipstream:schema:{name}",
        "title": schema.pop("title"),
        "description": description,
        **schema,
    }


def _planned(schema: dict[str, Any]) -> dict[str, Any]:
    envelope = schema if schema["title"] == "Envelope" else schema["$defs"]["Envelope"]
    envelope["required"].append("routingSlip")
    slip = envelope["properties"]["routingSlip"]
    del slip["default"]
    slip["minItems"] = 1
    return schema
