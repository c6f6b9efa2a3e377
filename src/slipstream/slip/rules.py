"""The rules that router and workers advance slips by, as the settings say."""

from __future__ import annotations

from slipstream.slip.advance import Rules
from slipstream.slip.event import Event
from slipstream.slip.routes.condition import Condition, ConditionFailed, ConditionInvalid
from slipstream.slip.settings import SlipSettings


def rules_of(settings: SlipSettings) -> Rules:
    return Rules(_holds, settings.max_attempts)


def _holds(condition: str, event: Event) -> bool:
    """It came with the message, so it may be anything."""
    try:
        return Condition.of_text(condition).holds(event)
    except ConditionInvalid as error:
        raise ConditionFailed(f"this is no condition: {error}") from error
