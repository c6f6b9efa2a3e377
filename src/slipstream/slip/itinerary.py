"""Changing what lies ahead of a message."""

from __future__ import annotations

import datetime as dt

from msgspec.structs import replace

from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, RoutingStep, Status
from slipstream.slip.incoming import why_not_step
from slipstream.slip.slip import UNDO_ID, is_undoing, with_slip


class Itinerary:
    """The steps that lie ahead, for planners and workers that change them. What is done is not theirs to change, nor
    the step at hand.

    Example:
        itinerary.insert(RoutingStep("translate", Status.PENDING), before="formatter")
        itinerary.skip("retrieval", "nobody to remember")
    """

    def __init__(self, event: Event, now: dt.datetime, *, at_hand: str | None = None) -> None:
        steps = event.envelope.routing_slip
        self._now = now
        undoing = is_undoing(steps)
        first = 0
        for index, step in enumerate(steps):
            # A step that was skipped lies ahead as long as one before it does.
            is_over = step.status in {Status.OK, Status.ERROR} or (step.status is Status.SKIP and first == index)
            if is_over or step.id == at_hand or undoing:
                first = index + 1
        self._behind = list(steps[:first])
        self._ahead = list(steps[first:])
        self.changed = False

    @property
    def behind(self) -> tuple[RoutingStep, ...]:
        return tuple(self._behind)

    @property
    def ahead(self) -> tuple[RoutingStep, ...]:
        return tuple(self._ahead)

    @property
    def steps(self) -> tuple[RoutingStep, ...]:
        return (*self._behind, *self._ahead)

    def insert(self, step: RoutingStep, *, before: str | None = None, after: str | None = None) -> None:
        """Next of all, unless it is said before or after which."""
        if step.status is not Status.PENDING:
            raise InvalidSlip(f"step {step.id} is {step.status}: only what is PENDING can lie ahead")
        if nonsense := why_not_step(step):
            raise InvalidSlip(nonsense)
        if any(step.id == other.id for other in self.steps):
            raise InvalidSlip(f"there is a step {step.id} already")
        if step.id.startswith(UNDO_ID):
            raise InvalidSlip(f"step {step.id}: ids that begin with {UNDO_ID} are the router's")
        if before is not None and after is not None:
            raise InvalidSlip("a step is inserted before one or after one, not both")
        index = 0
        if before is not None:
            index = self._index(before)
        elif after is not None and after not in {step.id for step in self._behind}:
            index = self._index(after) + 1
        self._ahead.insert(index, step)
        self.changed = True

    def append(self, step: RoutingStep) -> None:
        """Last of all."""
        if self._ahead:
            self.insert(step, after=self._ahead[-1].id)
        else:
            self.insert(step)

    def skip(self, step_id: str, reason: str = "") -> None:
        """Again, it changes nothing: planners are asked again and again."""
        if any(step.id == step_id and step.status is Status.SKIP for step in self.steps):
            return
        index = self._index(step_id)
        step = self._ahead[index]
        self._ahead[index] = replace(step, status=Status.SKIP, ended_at=self._now, notes=reason or step.notes)
        self.changed = True

    def reorder(self, *step_ids: str) -> None:
        """These first, in this order, and then the others."""
        chosen = [self._ahead[self._index(step_id)] for step_id in step_ids]
        if len(set(step_ids)) != len(step_ids):
            raise InvalidSlip("a step was named twice")
        self._ahead = chosen + [step for step in self._ahead if step.id not in step_ids]
        self.changed = True

    def apply(self, event: Event) -> Event:
        return with_slip(event, self.steps) if self.changed else event

    def _index(self, step_id: str) -> int:
        """Also of one that is skipped: it keeps its place, so others can be put before or after it."""
        for index, step in enumerate(self._ahead):
            if step.id == step_id:
                return index
        if any(step.id == step_id for step in self._behind):
            raise InvalidSlip(f"step {step_id} does not lie ahead any more")
        raise InvalidSlip(
            f"there is no step {step_id}; ahead are {', '.join(step.id for step in self._ahead) or 'none'}"
        )
