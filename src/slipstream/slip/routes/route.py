"""A route: the steps for one type of event, and which of them an event takes."""

from __future__ import annotations

import datetime as dt

import msgspec

from slipstream.slip import hints
from slipstream.slip.event import Event, RoutingStep
from slipstream.slip.routes.condition import Condition, ConditionFailed


class PlannedStep(msgspec.Struct, frozen=True):
    """A step of the table. Its branches, if it has any, become an attribute when it is known who takes part."""

    step: RoutingStep
    when: Condition | None = None
    branches: dict[str, tuple[PlannedStep, ...]] = {}

    def taken_by(self, event: Event) -> RoutingStep | None:
        """The step as it stands in the slip, or None if the event does not take it. Raises ConditionFailed."""
        try:
            if self.when is not None and not self.when.holds(event):
                return None
        except ConditionFailed as error:
            raise ConditionFailed(f"step {self.step.id}, when: {error}") from error
        return self._with_branches(event) if self.branches else self.step

    def _with_branches(self, event: Event) -> RoutingStep | None:
        """A branch of which no step is taken is left out like a step, and nobody waits for it: were it to count as
        done, a join of `any` would be over before the others have begun."""
        taken = {name: steps for name, planned in self.branches.items() if (steps := steps_taken(planned, event))}
        if not taken:
            return None
        join = self.step.attributes[hints.JOIN]
        if join.isdigit():
            join = str(min(int(join), len(taken)))
        branches = msgspec.json.encode(taken).decode()
        attributes = {**self.step.attributes, hints.JOIN: join, hints.BRANCHES: branches}
        return msgspec.structs.replace(self.step, attributes=attributes)


class Route(msgspec.Struct, frozen=True):
    steps: tuple[PlannedStep, ...]
    timeout: dt.timedelta | None = None
    """Of the whole message."""

    def plan(self, event: Event) -> tuple[RoutingStep, ...]:
        """Raises ConditionFailed."""
        return steps_taken(self.steps, event)


def steps_taken(planned: tuple[PlannedStep, ...], event: Event) -> tuple[RoutingStep, ...]:
    return tuple(step for each in planned if (step := each.taken_by(event)) is not None)
