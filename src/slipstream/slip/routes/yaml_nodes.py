"""Reads YAML by its nodes, which know their lines, and as YAML 1.2 has it: `no` and `on` are text, and no dates.

Nothing is constructed but text, numbers, truth values, lists and maps. An alias is another reading of its anchor, and
readings are counted: a few lines of aliases of aliases stand for more nodes than any machine has room for.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from slipstream.slip.routes.document import Document, unreadable
from slipstream.slip.routes.problems import Place, Problem

NODES_MAX: Final = 50_000
DEPTH_MAX: Final = 100
_TOO_DEEP: Final = f"it is nested more than {DEPTH_MAX} deep, or in itself"

_TAG: Final = "tag:yaml.org,2002:"
_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012, as it is in the class above

    def fetch_flow_collection_start(self, token_class: Any) -> None:
        """The scanner's time grows with the square of the depth: a million brackets would take it days."""
        if self.flow_level > DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(token_class)


for _name, _pattern, _first in (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)


def read_yaml(file: str, text: str) -> Document:
    """Raises RouteTableInvalid if it is no YAML, or too much of it."""
    try:
        root = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise unreadable(file, _said(error), None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:  # a character that no YAML has
        raise unreadable(file, " ".join(str(error).split())) from error
    except RecursionError as error:
        raise unreadable(file, "it is nested too deeply") from error
    reading = _Reading(file)
    value = None if root is None else reading.value(root, ())
    return Document(value, file, reading.lines, tuple(reading.problems))


def _said(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.context, error.problem) if part)


class _Reading:
    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = 0
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._count(node, place)
        self.lines.setdefault(place, _line(node))
        match node:
            case yaml.MappingNode(tag=tag) if tag == _TAG + "map":
                return self._mapping(node, place)
            case yaml.SequenceNode(tag=tag) if tag == _TAG + "seq":
                return [self.value(each, (*place, index)) for index, each in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node, place)
            case _:
                return self._note(node, place, f"the tag {node.tag} is not known here")

    def _count(self, node: yaml.Node, place: Place) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise unreadable(self._file, f"its aliases stand for more than {NODES_MAX} values", _line(node))
        if len(place) > DEPTH_MAX:
            raise unreadable(self._file, _TOO_DEEP, _line(node))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._note(key_node, place, "a key is text, not a list or a map")
                continue
            key = self._scalar(key_node, place)
            inside = (*place, key if isinstance(key, str) else key_node.value)
            if key in found:
                self._note(key_node, inside, f"this key is there already, in line {self.lines[inside]}")
                continue
            self.lines[inside] = _line(key_node)
            found[key] = self.value(value_node, inside)
        return found

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return _whole(text)
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if _INT.match(text) and len(text) < 1_000:
                return int(text)
            case "float" if _FLOAT.match(text):
                return float(text)
            case tag:
                return self._note(node, place, f"{text!r:.40} cannot be read as {tag}")

    def _note(self, node: yaml.Node, place: Place, text: str) -> None:
        self.problems.append(Problem(text, place, self._file, _line(node)))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _whole(text: str) -> str:
    """JSON writes characters beyond the first 65,536 as two halves, which YAML does not put together."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
