"""What goes wrong around jobs, as opposed to within a task (`failure`)."""

from __future__ import annotations


class JobsError(Exception):
    """Anything that jobs refuse or cannot do. The message says what happened, to what, and what to do next."""


class InvalidJobs(JobsError):
    """A setting, a configuration or an argument that cannot be right."""


class MalformedMessage(JobsError):
    """Bytes that are no message of proto/jobs.proto, or one that makes no sense."""
