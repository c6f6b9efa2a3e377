"""A worker that is a whole program says what it does, and where the program logs by itself it does not interfere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.program import Program
from tests.server_process import ServerProcess

WORKER = """
import sys
from slipstream.client import AsyncMessage, Worker

app = Worker(sys.argv[1])

@app.handler(sys.argv[2], group="billing")
async def bill(message: AsyncMessage) -> None:
    print("billed", message.text, flush=True)

app.run()
"""


def test_a_worker_says_that_it_starts_waits_for_its_topic_and_is_connected(
    tmp_path: Path, shared: ServerProcess, topic: str
) -> None:
    script = tmp_path / "billing.py"
    script.write_text(WORKER)
    worker = Program([sys.executable, str(script), shared.base, f"{topic}.new"])
    try:
        worker.wait_for(rf"INFO +working on {topic}\.new \(group billing\) at {shared.base} as \S+, 1 at a time")
        worker.wait_for(rf"WARNING {topic}\.new \(group billing\): .*; waiting for it")
        shared.create(f"{topic}.new")
        worker.wait_for(rf"INFO +{topic}\.new \(group billing\): connected, waiting for messages")
        shared.produce(f"{topic}.new", "two books")
        worker.wait_for("billed two books")
        assert worker.stop() == 0
    finally:
        worker.kill()


def test_a_program_that_logs_keeps_its_own_way() -> None:
    program = """
import logging
from slipstream.program_log import log_to_stderr

logging.basicConfig(format="mine %(message)s", level="ERROR")
log_to_stderr()
logging.getLogger("slipstream.client").info("hidden")
logging.getLogger("slipstream.client").error("shown")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == "mine shown\n"
