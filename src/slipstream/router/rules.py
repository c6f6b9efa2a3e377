"""A router that is a file of rules: the first rule whose conditions all hold decides.

    [[rule]]
    when = { topic = "orders.*", tenant_id = "acme", payload = { "type" = "invoice", "total.currency" = "EUR" } }
    then = { label = "finance", target_topic = "tasks.finance", meta = { source = "rules" } }

Conditions on `topic`, `key`, `tenant_id`, `run_id`, `step_id` and labels are shell patterns; `payload` compares fields
of a JSON value, named by their dotted path.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from slipstream.broker import RoutingDecision
from slipstream.router.hook import RoutedMessage, RouterRefused


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str = "*"
    key: str = "*"
    tenant_id: str = "*"
    run_id: str = "*"
    step_id: str = "*"
    labels: dict[str, str] = {}
    payload: dict[str, str | int | float | bool] = {}


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    then: RoutingDecision
    when: Conditions = Conditions()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[Rule]


class RulesRouter:
    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules
        self._needs_payload = any(rule.when.payload for rule in rules)

    @classmethod
    def load(cls, path: Path) -> RulesRouter:
        try:
            return cls(msgspec.toml.decode(path.read_bytes(), type=_File).rule)
        except OSError as error:
            raise RouterRefused(f"the rules file {path} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RouterRefused(f"the rules file {path} makes no sense: {error}") from error

    async def route(self, topic: str, message: RoutedMessage) -> RoutingDecision | None:
        payload = _json(message.value) if self._needs_payload else None
        for rule in self.rules:
            if _holds(rule.when, topic, message, payload):
                return rule.then
        return None

    async def close(self) -> None:
        pass


def _holds(when: Conditions, topic: str, message: RoutedMessage, payload: object) -> bool:
    envelope = message.envelope
    labels = (envelope.labels if envelope is not None else None) or {}
    patterns = [
        (topic, when.topic),
        (message.key.decode(errors="replace"), when.key),
        (envelope.tenant_id if envelope is not None else "", when.tenant_id),
        (envelope.run_id if envelope is not None else "", when.run_id),
        (envelope.step_id if envelope is not None else "", when.step_id),
        *((labels.get(name, ""), pattern) for name, pattern in when.labels.items()),
    ]
    return all(fnmatchcase(text, pattern) for text, pattern in patterns) and all(
        _same(_at(payload, path), expected) for path, expected in when.payload.items()
    )


def _same(found: object, expected: object) -> bool:
    """In JSON, true is not 1."""
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


def _json(value: bytes) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _at(payload: object, path: str) -> object:
    for name in path.split("."):
        if not isinstance(payload, dict):
            return None
        payload = payload.get(name)
    return payload
