"""A real server, killed: what it answered for is there when it comes back."""

from __future__ import annotations

import time

from slipstream.engine.salvage import SalvagedState
from slipstream.store.doctor import Doctor
from tests.conftest import StartServer


def test_a_killed_server_comes_back_with_everything_it_answered_for(start_server: StartServer) -> None:
    server = start_server("--no-compaction-process", "--journal-bytes", "4096")
    server.create("orders", 3)
    for round_ in range(3):
        for number in range(60):
            assert server.produce("orders", f"{round_}.{number}", key=f"user:{number}").status_code == 200
        with server.consume("orders") as items:
            item = next(items)
            assert server.ack("orders", item).status_code == 204
        while round_ == 2 and not any((server.data / "segments").rglob("*.arrow")):
            time.sleep(0.01)  # by then it is compacted under way, and nobody is told
        server.crash()
        with Doctor(server.data, SalvagedState) as doctor:
            diagnosis = doctor.examine()
        assert diagnosis.exit_code in {0, 1}, diagnosis
        assert diagnosis.contents.messages == 60 * (round_ + 1)
        server.start()
