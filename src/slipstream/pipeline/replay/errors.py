"""What can be wrong with a replay, said so that somebody can act on it."""

from __future__ import annotations

from slipstream.pipeline.errors import PipelineError


class DoesNotFit(PipelineError):
    """What was asked for does not fit what was done before, or is being done."""


class ReplayBusy(DoesNotFit):
    """Another process is at the same replay."""


class ReplayUnfinished(DoesNotFit):
    """It was asked for anew, and was not finished the first time."""


class ReplayForgotten(DoesNotFit):
    """The server does not remember what it was given of this replay."""


class ReplayUnreadable(PipelineError):
    """A file that says how a replay is cannot be read."""


class NoSuchTopic(PipelineError):
    """Where it was to be sent there is no topic."""
