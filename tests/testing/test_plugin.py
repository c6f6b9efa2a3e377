"""pytest finds the fixture by itself, in a project that only has Slipstream installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """
def test_mail(slipstream_broker):
    with slipstream_broker.client() as client:
        client.create_topic("mail")
        client.produce("mail", "hello", delay_ms=60_000)
        slipstream_broker.advance(minutes=1)
        assert [message.text for message in client.fetch("mail", "senders")] == ["hello"]
"""


def test_the_fixture_is_there_for_any_project(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in result.stdout, result.stdout + result.stderr
