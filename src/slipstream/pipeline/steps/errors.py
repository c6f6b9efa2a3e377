"""What can go wrong with steps on Spark."""

from __future__ import annotations

from slipstream.pipeline.errors import PipelineError


class InvalidStep(PipelineError):
    """A step that cannot be done as it is declared; the reason says what would work."""


class StepTrouble(Exception):
    """What a task stands on is away, the server most of all: nothing is known of the messages, and nothing is wrong with
    the function."""


class AnswerRefused(Exception):
    """What the function returned is no answer to what it was given."""
