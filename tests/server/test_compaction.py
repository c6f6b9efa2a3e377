"""The journal turns into segments while the server runs, and nobody on the wire notices."""

from __future__ import annotations

from tests.conftest import StartServer


def test_messages_are_taken_and_delivered_across_many_journal_files_and_a_crash(start_server: StartServer) -> None:
    server = start_server("--journal-bytes", "4096", "--max-in-flight", "0")
    server.create("t")
    values = [f"{number}:" + "x" * 500 for number in range(100)]
    for value in values:
        while (response := server.produce("t", value)).status_code != 200:
            assert response.status_code == 429, response.text  # compaction is behind, and says so
    server.await_metric(0, "slipstream_compaction_backlog")
    assert list(server.data.glob("segments/*/*/*.arrow")), "nothing was compacted"
    assert [item["value"] for item in server.take("t", 100, group="before")] == values
    server.restart()
    assert [item["value"] for item in server.take("t", 100, group="after")] == values
    assert not any("CRITICAL" in line for line in server.log)
