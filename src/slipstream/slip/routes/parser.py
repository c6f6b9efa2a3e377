"""From what a route table says to routes: every key is known, every value makes sense, or the place is named."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from slipstream.bus.attributes import encodable
from slipstream.bus.errors import InvalidArgument
from slipstream.bus.names import check_name
from slipstream.slip import hints
from slipstream.slip.event import RoutingStep, Status
from slipstream.slip.routes.condition import Condition, ConditionInvalid
from slipstream.slip.routes.document import Document
from slipstream.slip.routes.duration import milliseconds, parse_duration
from slipstream.slip.routes.problems import Place, Problem, RouteTableInvalid, did_you_mean
from slipstream.slip.routes.route import PlannedStep, Route
from slipstream.slip.topics import default_topic

ROUTER: Final = "router"
"""The step that plans. It is part of every slip; a table may name it where it comes anyway."""
UNDO_PREFIX: Final = "undo:"
"""Ids of compensating steps."""
ATTEMPTS_MAX: Final = 1_000_000

_TABLE_KEYS: Final = ("version", "routes")
_ROUTE_KEYS: Final = ("timeout", "steps")
_WORK_KEYS: Final = ("topic", "max_attempts", "timeout")
"""Only of a step that a worker does."""
_STEP_KEYS: Final = (
    *("id", "when", "unless", "optional", "version", "attributes", *_WORK_KEYS),
    *("parallel", "join", "wait", "deadline", "on_deadline"),
)


def parse_routes(document: Document) -> dict[str, Route]:
    """By type. Raises RouteTableInvalid with all problems there are."""
    parser = _Parser(document)
    routes = parser.table()
    if parser.problems:
        raise RouteTableInvalid(parser.problems)
    return routes


class _Unusable(Exception):
    """The problem is noted already, and there is no value to go on with."""


class _Parser:
    """Notes a problem and goes on, so that it finds the next one, too."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = list(document.problems)
        self._ids: dict[str, Place] = {}

    def note(self, place: Place, text: str) -> None:
        self.problems.append(self._document.problem(place, text))

    def refuse(self, place: Place, text: str) -> NoReturn:
        self.note(place, text)
        raise _Unusable

    # The table

    def table(self) -> dict[str, Route]:
        try:
            fields = self._fields(self._document.value, (), _TABLE_KEYS)
            if "version" in fields and (fields["version"] != 1 or isinstance(fields["version"], bool)):
                self.note(("version",), f"this is version 1 of route tables, not {fields['version']!r:.40}")
            if "routes" not in fields:
                self.refuse((), "there are no routes: a table is routes: {type: {steps: […]}}")
            routes = self._map(fields["routes"], ("routes",))
        except _Unusable:
            return {}
        if not routes:
            self.note(("routes",), "there are no routes")
        return {name: route for name in routes if (route := self._route(name, routes[name])) is not None}

    def _route(self, name: str, value: object) -> Route | None:
        place = ("routes", name)
        if not name or "*" in name[:-1]:
            self.note(place, "a type is text that is not empty, and has a * only at its end")
        self._ids = {}
        try:
            fields = self._fields(value, place, _ROUTE_KEYS)
            timeout = self._duration(fields, "timeout", place)
            if "steps" not in fields:
                self.refuse(place, "there are no steps: steps is a list of ids, or of maps with an id")
            steps = self._list(fields["steps"], (*place, "steps"))
            if steps and _is_router(steps[0]):
                planned = self._steps(steps, (*place, "steps"), start=1)
            else:
                planned = self._steps(steps, (*place, "steps"))
        except _Unusable:
            return None
        return Route(planned, timeout)

    def _steps(
        self, values: list[Any], place: Place, *, start: int = 0, branch: bool = False
    ) -> tuple[PlannedStep, ...]:
        if len(values) <= start:
            self.note(place, "there are no steps")
        steps = []
        for index in range(start, len(values)):
            try:
                steps.append(self._step(values[index], (*place, index), branch=branch))
            except _Unusable:
                continue
        return tuple(steps)

    # One step

    def _step(self, value: object, place: Place, *, branch: bool) -> PlannedStep:
        fields = {"id": value} if isinstance(value, str) else self._fields(value, place, _STEP_KEYS)
        if "id" not in fields:
            self.note(place, "a step needs an id")
        parallel, wait = "parallel" in fields, "wait" in fields
        self._check_combination(fields, place, parallel=parallel, wait=wait, branch=branch)
        when = self._condition(fields, "when", place)
        branches = self._branches(fields["parallel"], (*place, "parallel")) if parallel and not branch else {}
        attributes = self._attributes(fields, place) | self._hints(fields, place)
        if parallel:
            attributes[hints.JOIN] = self._join(fields, place, len(branches))
        if wait:
            attributes[hints.WAIT] = self._choice(fields, "wait", place, ("approval", "signal"), "approval")
        topic = self._name(fields, "topic", (*place, "topic"))
        id_place = place if isinstance(value, str) else (*place, "id")
        step_id = self._id(fields, id_place, has_topic=topic is not None or parallel or wait)
        step = RoutingStep(
            step_id,
            Status.PENDING,
            v=self._version(fields, place),
            max_attempts=self._max_attempts(fields, place),
            next_topic=topic,
            attributes=attributes,
        )
        return PlannedStep(step, when, branches)

    def _check_combination(
        self, fields: Mapping[str, Any], place: Place, *, parallel: bool, wait: bool, branch: bool
    ) -> None:
        if parallel and wait:
            self.note((*place, "wait"), "a step is either parallel or waits: make it two")
        if parallel and branch:
            self.note((*place, "parallel"), "a branch has no parallel steps of its own")
        if "join" in fields and not parallel:
            self.note((*place, "join"), "only parallel steps are joined")
        for key in ("deadline", "on_deadline"):
            if key in fields and not (parallel or wait):
                self.note(
                    (*place, key), "only a parallel or waiting step has a deadline; what one attempt has is timeout"
                )
        if "on_deadline" in fields and "deadline" not in fields:
            self.note((*place, "on_deadline"), "there is no deadline")
        for key in _WORK_KEYS:
            if key in fields and (parallel or wait):
                self.note((*place, key), "no worker does a step that is parallel or waits")

    def _id(self, fields: Mapping[str, Any], place: Place, *, has_topic: bool) -> str:
        step_id = self._name(fields, "id", place)
        if step_id is None:
            return "?"
        if step_id == ROUTER:
            self.note(place, "the router is the first step of every slip, and no other")
        elif step_id.startswith(UNDO_PREFIX):
            self.note(place, f"ids that start with {UNDO_PREFIX} are those of steps that undo others")
        elif step_id in self._ids:
            first = self._document.line(self._ids[step_id])
            also = f", in line {first}" if first is not None else ""
            self.note(place, f'there is a step "{step_id}" in this route already{also}')
        elif not has_topic:
            self._check_name(place, "topic", default_topic(step_id))
        self._ids.setdefault(step_id, place)
        return step_id

    def _version(self, fields: Mapping[str, Any], place: Place) -> str:
        version = fields.get("version", "1")
        if isinstance(version, int) and not isinstance(version, bool):
            return str(version)
        if isinstance(version, str) and version:
            return version
        self.note((*place, "version"), f'a version is text such as "2", not {_kind(version)}')
        return "1"

    def _max_attempts(self, fields: Mapping[str, Any], place: Place) -> int | None:
        if "max_attempts" not in fields:
            return None
        count = fields["max_attempts"]
        if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= ATTEMPTS_MAX:
            return count
        self.note((*place, "max_attempts"), f"a whole number from 1 to {ATTEMPTS_MAX} is wanted, not {_kind(count)}")
        return None

    def _hints(self, fields: Mapping[str, Any], place: Place) -> dict[str, str]:
        found: dict[str, str] = {}
        if (timeout := self._duration(fields, "timeout", place)) is not None:
            found[hints.TIMEOUT_MS] = str(milliseconds(timeout))
        if "optional" in fields:
            if not isinstance(fields["optional"], bool):
                self.note((*place, "optional"), f"true or false is wanted, not {_kind(fields['optional'])}")
            elif fields["optional"]:
                found[hints.OPTIONAL] = "true"
        if (unless := self._condition(fields, "unless", place)) is not None:
            found[hints.UNLESS] = unless.text
        if (deadline := self._duration(fields, "deadline", place)) is not None:
            found[hints.DEADLINE_MS] = str(milliseconds(deadline))
            found[hints.ON_DEADLINE] = self._choice(fields, "on_deadline", place, ("fail", "skip", "go on"), "fail")
        return found

    def _attributes(self, fields: Mapping[str, Any], place: Place) -> dict[str, str]:
        attributes: dict[str, str] = {}
        if "attributes" not in fields:
            return attributes
        place = (*place, "attributes")
        try:
            given = self._map(fields["attributes"], place)
        except _Unusable:
            return attributes
        for name, value in given.items():
            at = (*place, name)
            if name.startswith(hints.PREFIX):
                self.note(at, f"names under {hints.PREFIX} are the router's own")
            elif not name:
                self.note(at, "an attribute needs a name")
            elif not isinstance(value, str | int | float):
                self.note(at, f"an attribute is text, not {_kind(value)}")
            else:
                try:
                    attributes[encodable("the name", name)] = encodable("this", _attribute_text(value))
                except InvalidArgument as error:
                    self.note(at, str(error))
        return attributes

    def _condition(self, fields: Mapping[str, Any], key: str, place: Place) -> Condition | None:
        if key not in fields:
            return None
        try:
            return Condition(fields[key])
        except ConditionInvalid as error:
            for problem in error.problems:
                self.note((*place, key, *problem.path), problem.text)
            return None

    # Branches

    def _branches(self, value: object, place: Place) -> dict[str, tuple[PlannedStep, ...]]:
        try:
            given = self._map(value, place)
        except _Unusable:
            return {}
        if not given:
            self.note(place, "there are no branches: parallel is {name: [steps]}")
        branches: dict[str, tuple[PlannedStep, ...]] = {}
        for name, steps in given.items():
            self._check_name((*place, name), "branch", name)
            try:
                branches[name] = self._steps(self._list(steps, (*place, name)), (*place, name), branch=True)
            except _Unusable:
                branches[name] = ()
        return branches

    def _join(self, fields: Mapping[str, Any], place: Place, branches: int) -> str:
        join = fields.get("join", "all")
        if join in ("all", "any") and isinstance(join, str):
            return join
        if not isinstance(join, int) or isinstance(join, bool):
            wanted = "all, any, or how many branches must succeed"
            self.note((*place, "join"), f"{wanted}, not {_shown(join)}{_near(join, ('all', 'any'))}")
        elif join < 1 or join > branches > 0:
            self.note((*place, "join"), f"{join} of {branches} branches cannot succeed")
        return str(join)

    # Kinds of values

    def _fields(self, value: object, place: Place, known: tuple[str, ...]) -> dict[str, Any]:
        fields = self._map(value, place)
        for key in fields:
            if key not in known:
                hint = did_you_mean(key, known) or f"; there is {', '.join(known)}"
                self.note((*place, key), f'unknown key "{key}"{hint}')
        return fields

    def _map(self, value: object, place: Place) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self.refuse(place, f"a map is wanted, not {_kind(value)}")
        for key in value:
            if not isinstance(key, str):
                self.note(place, f"the key {key!r:.40} is not text: put it in quotes")
        return {key: each for key, each in value.items() if isinstance(key, str)}

    def _list(self, value: object, place: Place) -> list[Any]:
        if not isinstance(value, list | tuple):
            self.refuse(place, f"a list is wanted, not {_kind(value)}")
        return list(value)

    def _name(self, fields: Mapping[str, Any], key: str, place: Place) -> str | None:
        if key not in fields:
            return None
        if not isinstance(fields[key], str):
            self.note(place, f"text is wanted, not {_kind(fields[key])}")
            return None
        return fields[key] if self._check_name(place, key, fields[key]) else None

    def _check_name(self, place: Place, what: str, name: str) -> bool:
        try:
            check_name(what, name)
        except InvalidArgument as error:
            self.note(place, str(error))
            return False
        return True

    def _duration(self, fields: Mapping[str, Any], key: str, place: Place) -> dt.timedelta | None:
        if key not in fields:
            return None
        try:
            return parse_duration(fields[key])
        except ValueError as error:
            self.note((*place, key), f"{error}, not {_shown(fields[key])}")
            return None

    def _choice(self, fields: Mapping[str, Any], key: str, place: Place, known: tuple[str, ...], default: str) -> str:
        value = fields.get(key, default)
        if isinstance(value, str) and value in known:
            return value
        self.note((*place, key), f"{' or '.join(known)} is wanted, not {_shown(value)}{_near(value, known)}")
        return default


def _is_router(step: object) -> bool:
    return step == ROUTER or (isinstance(step, Mapping) and dict(step) == {"id": ROUTER})


def _attribute_text(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _near(value: object, known: Iterable[str]) -> str:
    return did_you_mean(value, known) if isinstance(value, str) else ""


def _shown(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) and not isinstance(value, bool) else _kind(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return f"{value!r:.80}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a map"
        case _:
            return f"a {type(value).__name__}"
