"""The extras of the package, the optional parts of an installation: which of them are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

TABLE_READERS = ("deltalake", "duckdb", "google.protobuf", "ptars")
"""The modules of the extra `pipeline` that look at tables: without Spark."""

MODULES: Mapping[str, tuple[str, ...]] = {
    "nats": ("nats", "nkeys"),
    "pubsub": ("google.cloud.pubsub_v1",),
    "opentelemetry": ("opentelemetry.sdk",),
    "slip": ("datalogic_py", "yaml"),
    "redis": ("redis",),
    "jobs": ("obstore", "google.protobuf"),
    "pipeline": (*TABLE_READERS, "pyspark"),
    "connect": ("grpc", "grpc_status", "google.rpc", "zstandard"),
}
"""Extra → the modules it brings that its users import."""


def is_installed(extra: str) -> bool:
    """Return whether all modules of an extra are installed, without an import of them."""
    return all(_is_there(name) for name in MODULES[extra])


def can_read_tables() -> bool:
    """Return whether the part of the extra `pipeline` that looks at tables is installed."""
    return all(_is_there(name) for name in TABLE_READERS)


def install_command(*extras: str) -> str:
    """Return the command that installs the extras."""
    return f"pip install 'slipstream[{','.join(extras)}]'"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # raised for a submodule whose package is missing
        return False
