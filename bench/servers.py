"""Servers and generators as processes: the bench measures what a user would run."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec

from bench.batch import Batches, Kind
from bench.bus import Plan, Rates
from bench.full_path import FullPath
from bench.jobs import Measured as JobsMeasured
from bench.jobs import Plan as JobPlan
from bench.load import Load, LoadResult
from bench.pipeline import Measured as PipelineMeasured
from bench.pipeline import Plan as PipelinePlan
from bench.pipeline import Read as PipelineRead
from bench.slip import Plan as SlipPlan
from bench.slip import Seconds

VALUE_BYTES = 200
WARMUP_S = 0.5
PRODUCERS = 16
DRAINERS = 4
PUBSUB_SERVER = Path(__file__).parent.parent / ".cache" / "pubsub-server" / "pubsub-server"


class Server:
    """A process that says on stderr where it listens."""

    def __init__(self, *command: str) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"listening on http://[^ ]*:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise RuntimeError(f"{command} did not start")

    def post(self, path: str, body: object) -> None:
        httpx.post(f"http://127.0.0.1:{self.port}{path}", json=body).raise_for_status()

    def next_offset(self, topic: str) -> int:
        answer = httpx.get(f"http://127.0.0.1:{self.port}/v2/topics/{topic}").raise_for_status()
        return int(answer.json()["next_offset"])

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory of the process itself, and of the processes it started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return _rss_mb(pid), sum(_rss_mb(int(child)) for child in children)

    def seconds_to_health(self) -> float:
        """From the start of the process to its first healthy answer."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/v1/healthz").status_code == httpx.codes.OK:
                    return time.perf_counter() - self.started

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextlib.contextmanager
def echo() -> Iterator[Server]:
    server = Server("-m", "bench.echo", "0")
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


@contextlib.contextmanager
def slipstream(data: Path, *arguments: str) -> Iterator[Server]:
    server = Server("-m", "slipstream", "serve", "--port", "0", "--data", str(data), *arguments)
    try:
        yield server
    finally:
        server.end()


def find_redis() -> str | None:
    """A Redis server, or Valkey, which is the same for this; None where none is installed."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


@contextlib.contextmanager
def redis(data: Path, command: str) -> Iterator[int]:
    """Its port, once it answers. It syncs every write before it answers, as we do."""
    data.mkdir()
    port = _free_port()
    options = ["--port", str(port), "--dir", str(data), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    with _process([command, *options], port):
        yield port


@contextlib.contextmanager
def nats(data: Path) -> Iterator[str]:
    """The address of a server with JetStream, once it answers."""
    port = _free_port()
    command = [str(Path(sys.executable).parent / "nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js"]
    with _process([*command, "-sd", str(data)], port):
        yield f"nats://127.0.0.1:{port}"


class NatsCluster:
    """Three servers with JetStream, by name."""

    def __init__(self, processes: dict[str, subprocess.Popen[bytes]], url: str) -> None:
        self._processes = processes
        self.url = url
        """The addresses of all of them."""

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()


@contextlib.contextmanager
def nats_cluster(data: Path) -> Iterator[NatsCluster]:
    names = ("n1", "n2", "n3")
    ports = {name: (_free_port(), _free_port()) for name in names}
    routes = ",".join(f"nats://127.0.0.1:{route}" for _, route in ports.values())
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, (port, route) in ports.items():
            command = [str(Path(sys.executable).parent / "nats-server"), "-js", "-a", "127.0.0.1", "-p", str(port)]
            command += ["--name", name, "-sd", str(data / name), "--cluster_name", "bench", "--routes", routes]
            command += ["--cluster", f"nats://127.0.0.1:{route}"]
            processes[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield NatsCluster(processes, ",".join(f"nats://127.0.0.1:{port}" for port, _ in ports.values()))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def find_pubsub() -> Path | None:
    """The server that `make test` builds for the tests of Pub/Sub; None where it could not."""
    binary = PUBSUB_SERVER
    return binary if binary.exists() else None


@contextlib.contextmanager
def pubsub(binary: Path) -> Iterator[str]:
    port = _free_port()
    with _process([str(binary), str(port)], port):
        yield f"127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator[None]:
    """Until the end of the context; begins when it takes connections."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
        yield
    finally:
        process.terminate()
        process.communicate()


def bus_rates(plan: Plan) -> Rates:
    command = [sys.executable, "-m", "bench.bus", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    return msgspec.json.decode(output, type=Rates)


def slip_seconds(plan: SlipPlan) -> Seconds:
    command = [sys.executable, "-m", "bench.slip", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    return msgspec.json.decode(output, type=Seconds)


def job_seconds(plan: JobPlan) -> JobsMeasured:
    command = [sys.executable, "-m", "bench.jobs", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    return msgspec.json.decode(output, type=JobsMeasured)


def pipeline_reading(plan: PipelinePlan) -> PipelineRead:
    return msgspec.json.decode(_pipeline("reading", plan), type=PipelineRead)


def pipeline_seconds(plan: PipelinePlan) -> PipelineMeasured:
    return msgspec.json.decode(_pipeline("tables", plan), type=PipelineMeasured)


def _pipeline(what: str, plan: PipelinePlan) -> bytes:
    command = [sys.executable, "-m", "bench.pipeline", what, msgspec.json.encode(plan).decode()]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=1800).stdout


@contextlib.contextmanager
def files() -> Iterator[Server]:
    server = Server("-m", "bench.files")
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def batch_load(
    port: int, topic: str, kind: Kind, seconds: float, messages: int = 0, warmup_seconds: float = WARMUP_S
) -> LoadResult:
    """Few connections have at least as many messages in flight as the other loads."""
    return _generate(
        "bench.batch",
        Batches(
            port=port,
            topic=topic,
            kind=kind,
            value_bytes=VALUE_BYTES,
            seconds=seconds,
            connections=DRAINERS if kind == "drain" else PRODUCERS,
            messages=messages,
            warmup_seconds=warmup_seconds,
        ),
    )


def produce_load(server: Server, topic: str, seconds: float, warmup_seconds: float = WARMUP_S) -> LoadResult:
    load = Load(port=server.port, topic=topic, value_bytes=VALUE_BYTES, seconds=seconds, warmup_seconds=warmup_seconds)
    return _generate("bench.load", load)


def full_path_load(server: Server, topic: str, seconds: float) -> LoadResult:
    return _generate("bench.full_path", FullPath(port=server.port, topic=topic, seconds=seconds))


def _generate(module: str, plan: msgspec.Struct) -> LoadResult:
    command = [sys.executable, "-m", module, msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    result = msgspec.json.decode(output, type=LoadResult)
    if result.errors:
        raise RuntimeError(f"{module}: {result.errors} of {result.requests} requests were refused")
    return result


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0
