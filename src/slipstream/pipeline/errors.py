"""What can go wrong with the pipeline, said so that somebody can act on it."""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline cannot do this; the text says why, and what to do."""


class InvalidPipeline(PipelineError):
    """A setting or an argument makes no sense."""


class TablesBusy(PipelineError):
    """Another process writes these tables."""


class TablesUnfit(PipelineError):
    """The tables and what is known of how far they go do not fit together."""


class SparkUnreachable(PipelineError):
    """Nobody listens where Spark should be."""


class SparkEnded(PipelineError):
    """It was there, and is no more."""
