"""The one session of Spark that the tests of a run share, and commands that run on it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slipstream.pipeline.session import spark_session
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.spark_place import check_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.settings import PipelineSettings

STARTERS = (
    "slipstream.pipeline.session",
    "slipstream.pipeline.run",
    "slipstream.pipeline.replay.replaying",
    "slipstream.pipeline.downloads.on_spark",
)
"""The modules in which a command finds `spark_session`."""


def shared_session(home: Path) -> AbstractContextManager[SparkSession]:
    """Start Spark as the pipeline does, on two cores; what it leaves behind is in `home`."""
    settings = load_settings({"master": "local[2]", "driver_memory": "1g", "shuffle_partitions": 2}, {})
    extra = {
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={home}",
        "spark.local.dir": str(home / "local"),
        # For a few rows, to compile an expression takes longer than to interpret it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    return spark_session(settings, home / "spark.log", extra)


def share_with_commands(spark: SparkSession, patch: pytest.MonkeyPatch) -> None:
    """Let commands of this process run on a session that is there: they check the place, and leave it running."""

    @contextlib.contextmanager
    def there(
        settings: PipelineSettings, said: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        check_place(settings.master, settings.remote)
        yield spark

    for name in STARTERS:
        patch.setattr(importlib.import_module(name), "spark_session", there)
