"""What operators type, against a service and a worker that really run: one for all tests, which keep to their jobs."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from slipstream.cli import main
from slipstream.cli.jobs_submit import manifest_of
from slipstream.cli.output import Output
from tests.cli.job_site import Jobs, Process, Web, running, until, web_server
from tests.forked import Forked
from tests.program import Program
from tests.server_process import ServerProcess

TOKEN = "let-me-in"


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with web_server() as made:
        yield made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("jobs")
    with running(directory, "run", "--port", "0", JOBS_MAX_RESOURCES="50") as process:
        yield process


@pytest.fixture
def jobs(service: Process) -> Jobs:
    return Jobs(service.url)


@pytest.fixture
def partial(jobs: Jobs, web: Web) -> str:
    """A job with two resources that were stored, and one that was not."""
    job_id = jobs.submit(f"{web.url}/ok/a.txt", f"{web.url}/gone/b.txt", f"{web.url}/ok/c.txt")
    jobs.run("status", job_id, "--wait", expect=1)
    return job_id


# Submitting


def test_a_manifest_comes_from_a_file_or_from_stdin(jobs: Jobs, web: Web, tmp_path: Path) -> None:
    manifest = json.dumps({"manifest_version": "v1", "resources": [{"id": "a", "url": f"{web.url}/ok/a"}]})
    (tmp_path / "manifest.json").write_text(manifest)
    said = jobs.said("submit", "--type", "photos", str(tmp_path / "manifest.json"), "--tenant", "acme")
    words = dict(line.split() for line in said.splitlines() if line.strip())
    assert words["manifest"] == f"manifests/photos/{words['job']}/metadata.json"
    assert words["resources"] == "1"
    assert jobs.json("status", words["job"], "--wait")["tenant"] == "acme"
    again = jobs.json("submit", "--type", "photos", "-", stdin=manifest)
    assert again["job_id"] != words["job"]


def test_the_same_key_is_the_same_job(jobs: Jobs, web: Web) -> None:
    given = ("submit", "--type", "photos", f"{web.url}/ok/a", "--key", "crawl-17")
    assert jobs.json(*given)["job_id"] == jobs.json(*given)["job_id"]


def test_ids_are_made_of_urls_and_are_different() -> None:
    urls = [
        "http://cats/1.jpg",
        "http://dogs/1.jpg",
        "http://cats/",
        "http://cats/a%20b?x=1",
        "http://[",
        "http://x/1.jpg",
    ]
    ids = [each["id"] for each in manifest_of([*urls, "http://x/" + "y" * 300])["resources"]]
    assert ids == ["1.jpg", "2-1.jpg", "3", "a b", "5", "3-1.jpg", "y" * 118]


def test_a_job_is_watched_to_its_end_right_away(jobs: Jobs, web: Web) -> None:
    done = jobs.lines("submit", "--type", "photos", f"{web.url}/ok/a", "--watch")
    assert done[-1]["state"] == "completed"
    said = jobs.said("submit", "--type", "photos", f"{web.url}/gone/a", "--watch", expect=1)
    assert said.splitlines()[-1].endswith(" failed: 0 of 1 completed, 1 failed")


def test_what_is_no_job_is_refused_with_what_to_do(jobs: Jobs, tmp_path: Path) -> None:
    submit = ("submit", "--type", "photos")
    assert "MANIFEST | URL" in jobs.refused(*submit, expect=2)
    assert "one of both" in jobs.refused(*submit, "x.json", "http://cats/1", expect=2)
    assert "No such file" in jobs.refused(*submit, str(tmp_path / "gone.json"), expect=2)
    assert "is empty" in jobs.refused(*submit, "-", stdin=" \n", expect=2)
    assert "resources[0].url" in jobs.refused(*submit, "ftp://cats/1", expect=1)
    assert "JSON" in jobs.refused(*submit, "-", stdin="{nothing", expect=1)
    assert "send 1 to 50" in jobs.refused(*submit, *["http://cats/1"] * 51, expect=1)
    assert "cannot be a job type" in jobs.refused("submit", "--type", "no type", "http://cats/1", expect=1)


# Looking


def test_bytes_speed_and_remaining_time_are_shown_while_a_file_is_under_way(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server() as web:
        job_id = jobs.submit(f"{web.url}/part/film")
        noted: list[str] = []

        def note(output: Output, text: str) -> None:
            """Let the second half come once the first is seen."""
            noted.append(text)
            web.go.set()

        monkeypatch.setattr(Output, "note", note)
        said = jobs.said("status", job_id, "--wait")
    assert re.search(r"0 B stored, 976\.6 KiB under way, [0-9.]+ [KM]iB/s, about 0:\d\d:\d\d left", noted[0]), noted
    assert "1.9 MiB stored" in said


def test_a_cancelled_job_says_how_many_resources_were_not_downloaded(jobs: Jobs) -> None:
    with web_server() as web:
        job_id = jobs.submit(f"{web.url}/slow/a", f"{web.url}/slow/b")
        assert jobs.said("pause", job_id) == f"{job_id} is paused, 2 resources left\n"
        assert jobs.said("cancel", job_id) == f"{job_id} is cancelled, 2 resources were not downloaded\n"


def test_a_status_shows_what_failed_and_why(jobs: Jobs, partial: str, web: Web) -> None:
    said = jobs.said("status", partial)
    assert "2 completed, 1 failed, of 3" in said
    assert [line.split()[:3] for line in said.splitlines() if "DOWNLOAD_HTTP_STATUS" in line][-1] == [
        "b.txt",
        "DOWNLOAD_HTTP_STATUS",
        "1",
    ]
    assert f"resources/photos/{partial}/a.txt" not in said
    whole = jobs.said("status", partial, "--resources")
    assert f"resources/photos/{partial}/a.txt" in whole
    found = jobs.json("status", partial)
    assert [each["resource_id"] for each in found["resources"]] == ["b.txt"]
    found = jobs.json("status", partial, "--resources")
    assert [each["state"] for each in found["resources"]] == ["completed", "failed", "completed"]
    assert "there is no job 'nothing'" in jobs.refused("status", "nothing", expect=3)


def test_jobs_are_listed_and_filtered(jobs: Jobs, web: Web, partial: str) -> None:
    job_id = jobs.submit(f"{web.url}/ok/a", job_type="listed")
    jobs.run("status", job_id, "--wait")
    other = jobs.json("submit", "--type", "listed", f"{web.url}/ok/b", "--tenant", "zoo")["job_id"]
    assert [each["job_id"] for each in jobs.lines("list", "--type", "listed")] == [other, job_id]
    assert [each["job_id"] for each in jobs.lines("list", "--tenant", "zoo")] == [other]
    assert partial in [each["job_id"] for each in jobs.lines("list", "--state", "partial")]
    limited = jobs.run("list", "--limit", "1")
    assert other in limited.stdout
    assert "there are more than 1" in limited.stderr
    assert jobs.said("list", "--type", "nothing").startswith("no such jobs; there are ")
    assert "'ended' is not one of" in jobs.refused("list", "--state", "ended", expect=2)


def test_logs_tell_each_step(jobs: Jobs, partial: str) -> None:
    found = jobs.lines("logs", partial)
    assert [each["fields"]["step"] for each in found if each["resource_id"] == "b.txt"] == ["started", "failed"]
    assert [each["fields"]["step"] for each in found if each["resource_id"] == "a.txt"] == [
        "started",
        "downloaded",
        "stored",
    ]
    offsets = [each["offset"] for each in found]
    assert offsets == sorted(offsets)
    assert [each["offset"] for each in jobs.lines("logs", partial, "--since-offset", str(offsets[3]))] == offsets[3:]
    assert len(jobs.lines("logs", partial, "--limit", "2")) == 2
    said = jobs.said("logs", partial)
    assert "error b.txt DOWNLOAD_HTTP_STATUS" in said
    assert "there is no job" in jobs.refused("logs", "nothing", expect=3)


def test_logs_are_followed_until_the_job_has_ended(jobs: Jobs) -> None:
    with web_server() as web:
        job_id = jobs.submit(f"{web.url}/slow/a")
        timer = threading.Timer(0.7, web.go.set)
        timer.start()
        found = jobs.lines("logs", job_id, "--follow")
        timer.join()
    assert [each["fields"]["step"] for each in found] == ["started", "downloaded", "stored"]


def test_a_log_may_be_long() -> None:
    """Direct producers write logs, too; a NATS server takes 1 MiB, and a Slipstream server more."""
    text = json.dumps({"job_id": "x", "resource_id": "a", "message": "long " * 300_000})

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"id: 7\nevent: log\ndata: {text}\n\n".encode())

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        (found,) = Jobs(f"http://127.0.0.1:{server.server_port}").lines("logs", "x")
        thread.join()
    assert (found["offset"], len(found["message"])) == (7, 1_500_000)


# Watching


@contextlib.contextmanager
def watching(jobs: Jobs, *arguments: str) -> Iterator[Program]:
    """A process, for what is to happen once it has said something; at the end it ends by itself, and well."""
    environment = os.environ | {"JOBS_URL": jobs.url, "NO_COLOR": "1"}
    started = Program([sys.executable, "-m", "slipstream", "jobs", "watch", *arguments], environment)
    try:
        yield started
        assert started.wait() == 0, started.said
    finally:
        started.kill()


def test_watching_prints_a_line_whenever_something_changed(jobs: Jobs) -> None:
    with web_server() as web:
        job_id = jobs.submit(f"{web.url}/slow/a", f"{web.url}/ok/b")
        with watching(jobs, job_id) as watcher:
            watcher.wait_for(f"^{job_id} in_progress: 1 of 2 completed$")
            web.go.set()
    lines = watcher.said.splitlines()
    assert lines[-1] == f"{job_id} completed: 2 of 2 completed"
    assert f"{job_id} in_progress: 1 of 2 completed" in lines
    assert len(lines) == len(set(lines))


def test_watching_without_a_name_is_about_all_that_have_not_ended(jobs: Jobs, partial: str) -> None:
    with web_server() as web:
        one, other = jobs.submit(f"{web.url}/slow/a"), jobs.submit(f"{web.url}/slow/b")
        until(lambda: len(jobs.lines("list", "--state", "in_progress")) == 2)
        with watching(jobs, "--json") as watcher:
            for each in (one, other):
                watcher.wait_for(each)
            web.go.set()
    assert {json.loads(line)["job_id"] for line in watcher.lines} == {one, other}
    assert jobs.said("watch") == "no job is under way\n"
    assert jobs.said("watch", partial, expect=1) == f"{partial} partial: 2 of 3 completed, 1 failed\n"
    assert "there is no job" in jobs.refused("watch", "nothing", expect=3)


def test_on_a_terminal_there_are_bars(jobs: Jobs, partial: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "slipstream", "jobs", "watch", partial, "--service", jobs.url]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160"}
    with Forked(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # how Linux says that nobody has the other end any more
        assert process.wait(60) == 1
    os.close(ours)
    text = shown.decode()
    assert partial in text
    assert "━" * 10 in text
    assert "32m" in text, "green"
    assert "31m" in text, "red"


# Dead letters


def test_dead_letters_are_listed_shown_replayed_and_then_stored(jobs: Jobs) -> None:
    with web_server() as web:
        job_id = jobs.submit(f"{web.url}/later/a", f"{web.url}/later/b")
        jobs.run("status", job_id, "--wait", expect=1)
        found = jobs.lines("dlq", "list", "--job", job_id)
        assert {each["resource_id"] for each in found} == {"a", "b"}
        assert "DOWNLOAD_HTTP_STATUS" in jobs.said("dlq", "show", job_id, "a")
        assert jobs.json("dlq", "show", job_id, "a")["url"] == f"{web.url}/later/a"

        would = jobs.json("replay", "--job", job_id, "--resource", "a", "--dry-run")
        assert ([each["resource_id"] for each in would["letters"]], would["dry_run"]) == (["a"], True)
        assert jobs.json("status", job_id)["resources_failed"] == 2, "nothing was done"

        web.go.set()
        replayed = jobs.run("replay", "--job", job_id)
        assert "2 dead letters replayed" in replayed.stderr
        assert len(replayed.stdout.splitlines()) == 3
        assert until(lambda: jobs.json("status", job_id)["state"] == "completed")
    assert jobs.said("dlq", "list", "--job", job_id) == "no dead letters\n"
    assert {each["became"] for each in jobs.lines("dlq", "list", "--job", job_id, "--dealt-with")} == {"replayed"}
    assert "0 dead letters replayed" in jobs.run("replay", "--job", job_id).stderr


def test_dead_letters_are_selected_by_code_and_time(jobs: Jobs, partial: str) -> None:
    def count(*selection: str) -> int:
        return len(jobs.lines("dlq", "list", "--job", partial, *selection))

    assert count("--code", "DOWNLOAD_") == 1
    assert count("--code", "UPLOAD_") == 0
    assert count("--since", "1h") == 1
    assert count("--until", "1h") == 0
    assert count("--since", "2030-01-31T12:00:00Z") == 0
    assert count("--type", "photos") == 1
    assert count("--tenant", "nobody") == 0
    assert "is no time" in jobs.refused("dlq", "list", "--since", "yesterday", expect=2)


def test_what_is_discarded_is_out_of_sight(jobs: Jobs, partial: str) -> None:
    assert "1 dead letter would be discarded" in jobs.run("dlq", "discard", "--job", partial, "--dry-run").stderr
    assert "1 dead letter discarded" in jobs.run("dlq", "discard", "--job", partial).stderr
    assert jobs.lines("dlq", "list", "--job", partial) == []
    assert jobs.json("dlq", "show", partial, "b.txt")["became"] == "discarded"
    assert "no dead letter of x" in jobs.refused("dlq", "show", partial, "x", expect=3)


@pytest.mark.parametrize("command", [("replay",), ("dlq", "discard")])
def test_nothing_is_done_to_all_of_them_by_accident(jobs: Jobs, command: tuple[str, ...]) -> None:
    assert "or --all" in jobs.refused(*command, expect=2)
    assert "or --all" in jobs.refused(*command, "--dry-run", expect=2)
    assert jobs.json(*command, "--all", "--dry-run")["dry_run"] is True


# The service


def test_cleaning_up_counts_first(jobs: Jobs, partial: str) -> None:
    assert jobs.json("cleanup", "--older-than", "30d") == {"jobs": 0, "objects": 0, "dry_run": False}
    would = jobs.said("cleanup", "--older-than", "0", "--dry-run")
    assert "would be removed; what was downloaded stays" in would
    more = jobs.json("cleanup", "--older-than", "0", "--objects", "--dry-run")
    assert more["objects"] > more["jobs"] >= 1
    assert jobs.json("status", partial)["state"] == "partial", "it is still there"
    assert "is no duration" in jobs.refused("cleanup", "--older-than", "long", expect=2)
    assert "--older-than" in jobs.refused("cleanup", expect=2)


def test_the_ledger_is_rebuilt_and_says_the_same(jobs: Jobs, partial: str) -> None:
    before = jobs.json("status", partial)
    assert "read again" in jobs.said("rebuild")
    assert jobs.json("rebuild") == {"rebuilding": True}
    after = until(lambda: (found := jobs.json("status", partial))["state"] == "partial" and found)
    assert after["resources_completed"] == before["resources_completed"]


def test_health_names_every_part(jobs: Jobs) -> None:
    said = jobs.said("health")
    assert [line.split() for line in said.splitlines()] == [
        ["ok", part] for part in ("bus", "storage", "ledger", "listener", "tasks")
    ]
    assert jobs.json("health")["status"] == "ok"


def test_a_part_that_is_down_is_exit_code_1(tmp_path: Path) -> None:
    with running(tmp_path, "run", "--port", "0") as process:
        objects = tmp_path / "objects"
        if objects.exists():
            objects.rename(tmp_path / "away")
        objects.write_text("no folder")
        assert "down    storage: " in Jobs(process.url).said("health", expect=1)


def test_where_nobody_answers_it_is_said_and_exit_code_5(shared: ServerProcess) -> None:
    nobody = Jobs("http://127.0.0.1:9")
    for command in (["health"], ["list"], ["status", "x"], ["logs", "x"], ["replay", "--all"]):
        assert "no service answers at http://127.0.0.1:9" in nobody.refused(*command, expect=5)
    assert "no service answers" in Jobs("nonsense").refused("health", expect=5)
    assert "is no service of jobs: set JOBS_URL" in Jobs(shared.base).refused("list", expect=5)


def test_a_token_is_asked_for_and_too_many_jobs_have_to_wait(tmp_path: Path, web: Web) -> None:
    limits = {"JOBS_RATE_PER_S": "0.01", "JOBS_RATE_BURST": "1"}
    with running(tmp_path, "run", "--port", "0", JOBS_TOKEN=TOKEN, **limits) as process:
        jobs = Jobs(process.url)
        assert "JOBS_TOKEN" in jobs.refused("list", expect=1)
        assert jobs.lines("list", JOBS_TOKEN=TOKEN) == []
        assert jobs.lines("list", "--token", TOKEN) == []
        first, second = (["submit", "--type", "photos", f"{web.url}/ok/{name}"] for name in "ab")
        assert "JOBS_TOKEN" in jobs.refused(*first, expect=1)
        job_id = jobs.json(*first, "--token", TOKEN)["job_id"]
        assert "try again in" in jobs.refused(*second, "--token", TOKEN, expect=6)
        assert jobs.json("status", job_id, "--wait", "--token", TOKEN)["state"] == "completed"


def test_the_shell_completes_jobs(jobs: Jobs, partial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(url: str) -> list[str]:
        monkeypatch.setenv("JOBS_URL", url)
        shell = ShellComplete(main, {}, "slipstream", "_SLIPSTREAM_COMPLETE")
        return [each.value for each in shell.get_completions(["jobs", "status"], partial[:20])]

    assert partial in offered(jobs.url)
    assert offered("http://127.0.0.1:9") == []
