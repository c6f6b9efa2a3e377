"""What can go wrong with steps on Spark."""

from __future__ import annotations

from slipstream.pipeline.errors import PipelineError


class InvalidStep(PipelineError):
    """A step that cannot be done as it is declared; the reason says what would work."""


class AnswerRefused(Exception):
    """What the function returned is no answer to what it was given."""


class StepTrouble(Exception):
    """What a task stands on is away, the server most of all: nothing is wrong with the messages or the function."""
