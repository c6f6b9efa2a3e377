"""Effects that a consumer guards with a key, so that they happen once (ruling 8)."""

from __future__ import annotations

from slipstream.broker.changes import OnceBegan, OnceSettled, encode_change
from slipstream.broker.config import BrokerConfig
from slipstream.broker.effects import Effects
from slipstream.broker.errors import InvalidArgument, NotFound
from slipstream.broker.idempotency import Status, short
from slipstream.broker.name import check_name
from slipstream.broker.state import OnceKey, State


class EffectsOnce:
    """The commands of consumer idempotency."""

    def __init__(self, config: BrokerConfig, state: State, effects: Effects) -> None:
        self.config = config
        self.state = state
        self.effects = effects

    def begin(
        self, now_ms: int, name: str, group_name: str, key: str, owner: str, lease_ms: int = 0, tenant: str = ""
    ) -> bool:
        """Return True if the worker should do the effect, and False if it was done before and must be skipped."""
        identity = self._key(name, group_name, key, tenant)
        check_name("owner", owner)
        if not 0 <= lease_ms <= self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be between 0 and {self.config.lease_ms_max} (lease_ms_max)")
        lease_ms = lease_ms or self.config.lease_ms
        if not self.state.once.begin(identity, now_ms, owner, lease_ms):
            return False
        change = OnceBegan(identity[1], identity[0], identity[2], owner, now_ms + lease_ms)
        self.effects.changes.append(encode_change(change))
        return True

    def settle(
        self, now_ms: int, name: str, group_name: str, key: str, owner: str, error: str | None = None, tenant: str = ""
    ) -> None:
        """Note that the effect is done and must not be repeated, or with `error` that it failed and may begin again."""
        identity = self._key(name, group_name, key, tenant)
        known = self.state.once.find(identity, now_ms)
        if error is None and known is not None and known.status is Status.COMMITTED:
            return  # it was said before, and the answer got lost
        self.state.once.settle(identity, now_ms, owner)
        error_text = (error or "")[: self.config.last_error_chars_max]
        change = OnceSettled(identity[1], identity[0], identity[2], error is None, error_text, now_ms)
        self.effects.changes.append(encode_change(change))
        self.state.once_settled(change)

    def _key(self, name: str, group_name: str, key: str, tenant: str) -> OnceKey:
        if not key:
            raise InvalidArgument("an idempotency key is required")
        group = self.state.topic(name).groups.get(group_name)
        if group is None:
            raise NotFound(f"{name} has no group {group_name!r}: its first fetch or stream makes it")
        return short(tenant), group.id, short(key)
