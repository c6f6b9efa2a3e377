"""A real Spark cluster on this machine: a master and two workers of PySpark's own jars, whose Python does not find our
package."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pyspark

from slipstream.pipeline.class_archive import archive_for
from slipstream.pipeline.java import find_java
from tests.bus.sites.site import free_port
from tests.program import Program

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java that ends before its second compiler and a parallel collector would pay."""


class Cluster:
    """Started by `with`; whatever is left of it is killed at the end."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._count, self._cores, self._memory = workers, cores, memory
        self._daemons: list[Daemon] = []
        self.workers: list[Daemon] = []
        self.master = ""
        self.python = _python_without_package(folder)

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
            self.master = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            self.workers += [self._start_worker() for _ in range(self._count)]
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()

    @property
    def conf(self) -> dict[str, str]:
        """What a driver on this machine needs."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.defaultJavaOptions": _java_options(),
            "spark.cores.max": str(self._count * self._cores),
            "spark.pyspark.python": str(self.python),
        }

    @property
    def options(self) -> list[str]:
        """The options of a command that runs there."""
        return ["--master", self.master, *conf_options(self.conf)]

    def kill_worker(self, number: int = 0) -> None:
        """With its executors, at once, as when its machine has lost power."""
        self.workers[number].kill()

    def restore(self) -> None:
        """Start a new worker for each that was killed."""
        for number, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self.workers[number] = self._start_worker()
                self.workers[number].wait_for("Successfully registered with master")

    def logs(self) -> str:
        """All that its processes and their executors have written."""
        return "\n".join(
            path.read_text(errors="replace")
            for path in self._folder.rglob("*")
            if path.suffix == ".log" or path.name in {"stdout", "stderr"}
        )

    def _start_worker(self) -> Daemon:
        number = len(self._daemons)
        work = self._folder / f"work-{number}"
        work.mkdir()
        options = ("--port", "0", "--webui-port", "0", "--cores", str(self._cores), "--memory", self._memory)
        return self._start(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *options, "--work-dir", str(work), self.master
        )

    def _start(self, name: str, main: str, *options: str) -> Daemon:
        daemon = Daemon([main, "--host", "127.0.0.1", *options], self._folder, name)
        self._daemons.append(daemon)
        return daemon


def conf_options(options: Mapping[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A real server of Spark Connect, on two cores of this machine; gives its address."""
    port = free_port()
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.defaultJavaOptions": _java_options(),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", *conf_options(options)]
    command += ["--class", main, "spark-internal"]
    python = {"PYSPARK_PYTHON": str(_python_without_package(folder))}
    server = Daemon(command, folder, "connect", python)
    try:
        server.wait_for("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()


class Daemon(Program):
    """Of Spark's own; executors are in the process group of their worker."""

    def __init__(self, command: list[str], folder: Path, name: str, extra: Mapping[str, str] | None = None) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "PYSPARK"))},
            "JAVA_HOME": str(find_java()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": _java_options(),
            "SPARK_LOCAL_DIRS": str(folder / f"{name}-local"),
            **(extra or {}),
        }
        start = str(home / "bin" / "spark-class")
        super().__init__([start, *command], environment, folder, log=folder / f"{name}.log")


def _java_options() -> str:
    """Return options with which each of the many Javas here starts sooner."""
    return f"{archive_for(find_java()).options} {SHORT_LIVED}"


def _python_without_package(folder: Path) -> Path:
    """This Python with all that is installed, except for our package: an editable install is a `.pth` file, and
    `-S` reads none. What is installed comes first: the zip of PySpark that Spark names is compiled by every process."""
    path = folder / "python"
    packages = sysconfig.get_paths()["purelib"]
    path.write_text(f'#!/bin/sh\nexport PYTHONPATH="{packages}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path
