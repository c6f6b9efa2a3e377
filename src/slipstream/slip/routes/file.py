"""Reads the file of a route table, in whichever format its name ends with."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from slipstream.slip.routes.document import Document, unreadable
from slipstream.slip.routes.problems import Place
from slipstream.slip.routes.toml_lines import lines_of_toml

FILE_BYTES_MAX: Final = 1 << 20


def read_document(path: Path) -> Document:
    """Raises RouteTableInvalid if it cannot be read at all."""
    file, ending = str(path), path.suffix.lower()
    text = _text(path)
    match ending:
        case ".yaml" | ".yml":
            return _read_yaml(file, text)
        case ".json":
            return _read_json(file, text)
        case ".toml":
            return _read_toml(file, text)
        case _:
            raise unreadable(file, "the name of a route table ends with .yaml, .yml, .json or .toml")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise unreadable(str(path), f"it cannot be read: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise unreadable(str(path), f"a route table has {FILE_BYTES_MAX} bytes at most")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise unreadable(str(path), f"it is not UTF-8: {error.reason}", line) from error


def _read_yaml(file: str, text: str) -> Document:
    try:
        from slipstream.slip.routes.yaml_nodes import read_yaml  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"{file} needs a library that is not installed ({error}): pip install 'slipstream[slip]'"
        ) from error
    return read_yaml(file, text)


def _read_json(file: str, text: str) -> Document:
    """JSON is YAML, whose nodes know their lines; but that what is called JSON is JSON is seen to first."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise unreadable(file, error.msg, error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise unreadable(file, f"this is no JSON: {error}") from error
    # Tabs may stand between the tokens of JSON, not of YAML, and in no string of either as they are.
    return _read_yaml(file, text.replace("\t", " "))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _read_toml(file: str, text: str) -> Document:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        raise unreadable(file, found[1] if found else str(error), int(found[2]) if found else None) from error
    except RecursionError as error:
        raise unreadable(file, "it is nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise unreadable(file, str(error)) from error
    document = Document(value, file, lines_of_toml(text))
    problems = tuple(document.problem(place, text) for place, text in _not_in_json(value, ()))
    return Document(value, file, document.lines, problems)


def _not_in_json(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    """TOML has values that the other formats have not, and that no event has, which conditions compare them with."""
    match value:
        case dict():
            for key, each in value.items():
                yield from _not_in_json(each, (*place, key))
        case list():
            for index, each in enumerate(value):
                yield from _not_in_json(each, (*place, index))
        case float() if not math.isfinite(value):
            yield place, f"{value} is no number in JSON"
        case str() | bool() | int() | float():
            pass
        case _:
            yield place, f"times are written as text here: {str(value)!r}"
