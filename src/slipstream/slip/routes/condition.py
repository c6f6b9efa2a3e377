"""Conditions: JsonLogic about an event, in route tables and in the attributes of a step.

A condition sees `{"type": …, "payload": …, "envelope": …}`, the envelope by its names on the wire. Those in attributes
come out of a message, and so from whoever may publish it: what a condition may cost is limited, and operators that make
much out of little are not there.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Final

import msgspec

from slipstream.slip.event import Event
from slipstream.slip.routes.problems import Place, did_you_mean

if TYPE_CHECKING:
    import datalogic_py

RULE_CHARS_MAX: Final = 65_536
OPERATIONS_MAX: Final = 100_000
"""Of one evaluation. A condition over a list of a thousand things takes a few thousand."""
PARTS: Final = ("type", "payload", "envelope")
"""Of an event, as conditions see it."""
_FAMILIES: Final = ("Core", "DateTime", "ExtString", "ExtArray", "ExtObject", "ExtControl", "ErrorHandling", "ExtMath")
_CACHED_MAX: Final = 1_024


class RuleProblem(msgspec.Struct, frozen=True):
    """What is wrong with a rule, and at which keys and indexes inside it."""

    path: Place
    text: str


class ConditionInvalid(ValueError):
    """This is no rule of JsonLogic."""

    def __init__(self, problems: list[RuleProblem]) -> None:
        super().__init__("; ".join(problem.text for problem in problems))
        self.problems = problems


class ConditionFailed(Exception):
    """A rule that is well formed could not be decided for this event."""


class Condition:
    """A rule, compiled once. It may be asked from any thread.

    Example:
        Condition({"==": [{"var": "payload.channel"}, "#bitbrat"]}).holds(event)
    """

    def __init__(self, rule: object) -> None:
        """Raises ConditionInvalid."""
        self.text = _text(rule)
        engine = _engine()
        _check(engine, rule, self.text)
        # What is true is decided where the rule is: truthy() would take a result that is text for JSON.
        self._rule = engine.compile(f'{{"!!":[{self.text}]}}')
        self._reads = _parts_read(self._rule)
        _check_reads(self._rule)

    @classmethod
    def of_text(cls, text: str) -> Condition:
        """From JSON, as it stands in a step's attributes; compiled where it is met first. Raises ConditionInvalid."""
        return _of_text(text)

    def holds(self, event: Event) -> bool:
        """Raises ConditionFailed."""
        try:
            seen = msgspec.json.encode({part: getattr(event, part) for part in self._reads}).decode()
            return self._rule.evaluate_str(seen) == "true"
        except (_engine_error(), TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConditionFailed(f"the condition {_short(self.text)} cannot be decided: {_reason(error)}") from error

    def __repr__(self) -> str:
        return f"Condition({_short(self.text)})"


@functools.lru_cache(_CACHED_MAX)
def _of_text(text: str) -> Condition:
    if len(text) > RULE_CHARS_MAX:
        raise _too_long(len(text))
    try:
        rule = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConditionInvalid([RuleProblem((), f"this is no JSON: {error}")]) from error
    return Condition(rule)


def _text(rule: object) -> str:
    try:
        text = json.dumps(rule, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConditionInvalid([RuleProblem((), f"this cannot be written as JSON: {error}")]) from error
    if len(text) > RULE_CHARS_MAX:
        raise _too_long(len(text))
    return text


def _too_long(chars: int) -> ConditionInvalid:
    return ConditionInvalid([RuleProblem((), f"a rule of {chars} characters is too long: {RULE_CHARS_MAX} at most")])


def _check(engine: datalogic_py.Engine, rule: object, text: str) -> None:
    # Text, numbers and {} are always true or always false in JsonLogic: whoever wrote them meant something else.
    if not isinstance(rule, bool) and (not isinstance(rule, dict) or not rule):
        raise ConditionInvalid(
            [RuleProblem((), f'a rule is true, false or an operator such as {{"var": "payload.userId"}}, not {text}')]
        )
    problems = [
        RuleProblem(
            _path(rule, found["pointer"]), _diagnosis(engine, found["code"], found["message"], found["operator"])
        )
        for found in engine.check(text)
        if found["severity"] == "error"
    ]
    if problems:
        raise ConditionInvalid(problems)


def _path(rule: object, pointer: str) -> Place:
    """A JSON Pointer, as keys and indexes. An operator may be given one argument without a list around it, which the
    pointer has nevertheless: it ends where the rule does."""
    path: list[str | int] = []
    at = rule
    for word in pointer.split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and key in at:
            path.append(key)
            at = at[key]
        elif isinstance(at, list) and key.isdigit() and int(key) < len(at):
            path.append(int(key))
            at = at[int(key)]
    return tuple(path)


def _diagnosis(engine: datalogic_py.Engine, code: str, message: str, operator: str | None) -> str:
    if code == "NotAnOperator":
        return "this is no operator, which would be a map with one key: put several conditions into and, or or"
    if code != "UnknownOperator" or operator is None:
        return message.replace("`", '"')
    names = [name for each in engine.operators() for name in (each["name"], *each["aliases"])]
    return f'unknown operator "{operator}"{did_you_mean(operator, names)}'


def _parts_read(rule: datalogic_py.Rule) -> tuple[str, ...]:
    """The parts of an event that the rule can look at: encoding an envelope takes longer than most rules."""
    facts = rule.facts()
    if not facts["reads_complete"] or [] in facts["reads"]:
        return PARTS
    read = {path[0] for path in facts["reads"]}
    return tuple(part for part in PARTS if part in read)


def _check_reads(rule: datalogic_py.Rule) -> None:
    """A variable that is never there is a mistake in writing it, and would skip a step, or an approval, in silence."""
    facts = rule.facts()
    for path in facts["reads"]:
        if path and path[0] not in PARTS:
            name = ".".join(map(str, path))
            hint = did_you_mean(str(path[0]), PARTS)
            text = f"there is no {name}: a variable begins with type, payload or envelope{hint}"
            raise ConditionInvalid([RuleProblem((), text)])


def _reason(error: Exception) -> str:
    operator = getattr(error, "operator", None)
    if operator is not None and '{"type":"NaN"}' in str(error):
        return f'"{operator}" was given something that is no number'
    return str(error)


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


@functools.cache
def _engine() -> datalogic_py.Engine:
    try:
        import datalogic_py  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"conditions need a library that is not installed ({error}): pip install 'slipstream[slip]'"
        ) from error
    # Things of different kinds are not equal; the engine's own default is to fail, on every payload that has a number
    # where the rule's author expected a word.
    config = {"ops_budget": OPERATIONS_MAX, "loose_equality_errors": False}
    return datalogic_py.Engine(config=config, families=_FAMILIES)


@functools.cache
def _engine_error() -> type[Exception]:
    import datalogic_py  # noqa: PLC0415

    return datalogic_py.DataLogicError
