"""Rules for the source tree: which package may import which, how files are named, and how long they may get.

Each test checks every file and lists all offenders at once.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "slipstream"
TESTS = ROOT / "tests"
MODULES = sorted(SOURCE.rglob("*.py"))
TEST_MODULES = sorted(TESTS.rglob("test_*.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "mkdocs.yml")),
    *sorted((ROOT / ".github").rglob("*.*")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

LINES_MAX = 600

ABOVE = ("client", "bus", "slip", "jobs", "pipeline", "health", "testing", "cli")

MAY_NOT_KNOW: dict[str, set[str]] = {
    "outcome": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "handlers": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "record": {"api", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "store": {"api", "broker", "engine", "router", "limits", "server", "settings", *ABOVE},
    "broker": {"api", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "engine": {"api", "router", "limits", "server", "settings", *ABOVE},
    "router": {"api", "store", "engine", "limits", "server", "settings", *ABOVE},
    "excerpt": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "durations": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "plurals": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "variables": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "extras": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "program_log": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "references": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "threads": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "endings": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "origins": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "metric_sets": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "listening": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "handling": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "spans": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "telemetry": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "health": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings"}
    | {*ABOVE} - {"health"},
    "writer": {"api", "record", "broker", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "log_columns": {"api", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "limits": {"api", "record", "broker", "store", "engine", "router", "server", "settings", *ABOVE},
    "server": {"settings", *ABOVE},
    "settings": {"api", "router", "server", *ABOVE},
    "api": {"record", "store", "engine", "router", "limits", "server", "settings", *ABOVE},
    "client": {
        "record",
        "store",
        "engine",
        "router",
        "limits",
        "server",
        "settings",
        "bus",
        "slip",
        "jobs",
        "pipeline",
        "health",
        "testing",
        "cli",
    },
    "bus": {"router", "limits", "server", "slip", "jobs", "pipeline", "health", "testing", "cli"},
    "slip": {
        "api",
        "record",
        "broker",
        "store",
        "engine",
        "router",
        "limits",
        "server",
        "settings",
        "client",
        "jobs",
        "pipeline",
        "health",
        "testing",
        "cli",
    },
    "jobs": {
        "api",
        "record",
        "broker",
        "store",
        "engine",
        "router",
        "limits",
        "server",
        "settings",
        "client",
        "slip",
        "pipeline",
        "health",
        "testing",
        "cli",
    },
    # Through the log, as everybody reads it: never the broker's own files but those that Arrow describes.
    "pipeline": {"record", "store", "engine", "router", "limits", "server", "settings", "health", "testing", "cli"},
    "testing": {"pipeline", "health", "cli"},
    # An application, as its users write them.
    "demo": {
        "record",
        "broker",
        "store",
        "engine",
        "router",
        "limits",
        "server",
        "settings",
        "health",
        "testing",
        "cli",
    },
    # What is said over /v2, as to anybody; the broker's own process hands in what more it needs.
    "console": {"record", "broker", "store", "engine", "router", "limits", "server", "settings", "testing", "cli"},
    # Processes, files and HTTP: the parts are commands to it.
    "up": {
        *("api", "record", "broker", "store", "engine", "router", "limits", "server", "settings"),
        *("client", "bus", "slip", "jobs", "pipeline", "health", "testing", "cli"),
    },
}
"""Arrows point down only: docs/architecture.md."""

FOR_COMMANDS = {"console", "demo", "up"}
"""Nobody else knows them."""

OUTSIDE = {
    "asyncio",
    "concurrent",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "socket",
    "subprocess",
    "threading",
    "time",
}
"""What the broker does not touch: time and storage are handed to it."""

NOT_MIRRORED = {
    "bus/drivers/nats/test_cluster.py": "about the whole driver on three servers",
    "bus/drivers/nats/test_permissions.py": "about what the whole driver needs, as the documentation has it",
    "bus/drivers/nats/test_tls.py": "about connection.py with a server of its own, which asks for certificates",
    "cli/test_settings.py": "settings.py is one file above the packages, and the command line is where they are given",
    "console/browser/test_pictures.py": "about how all pages look",
    "console/browser/test_pictures_of_the_platform.py": "a picture for the documentation, of all parts",
    "console/browser/test_pictures_of_work.py": "pictures for the documentation, of several pages",
    "deploy/test_dashboard.py": "about what is deployed beside the package",
    "docs/test_bus.py": "about the documentation",
    "docs/test_client.py": "about the documentation",
    "docs/test_completeness.py": "about the documentation",
    "docs/test_examples.py": "about the documentation",
    "docs/test_how_to.py": "about the documentation",
    "docs/test_jobs.py": "about the documentation",
    "docs/test_links.py": "about the documentation",
    "docs/test_messaging.py": "about the documentation",
    "docs/test_observability.py": "about the documentation",
    "docs/test_pipeline.py": "about the documentation",
    "docs/test_quick_start.py": "about the documentation",
    "docs/test_routers.py": "about the documentation",
    "docs/test_sessions.py": "about the documentation",
    "docs/test_site.py": "about the documentation",
    "docs/test_slips.py": "about the documentation",
    "docs/test_steps.py": "about the documentation",
    "docs/test_tables.py": "about the documentation",
    "docs/test_tour.py": "about the documentation",
    "docs/test_up.py": "about the documentation",
    "examples/test_bus_app.py": "about the examples",
    "examples/test_chat.py": "about the examples",
    "examples/test_jobs.py": "about the examples",
    "examples/test_worker.py": "about the examples",
    "jobs/test_end_to_end.py": "about all of jobs",
    "jobs/test_kill.py": "kills workers and services; about all of jobs",
    "jobs/test_public_names.py": "what the package gives, from all of its modules",
    "pipeline/test_answers.py": "about how tests know what tables must contain",
    "pipeline/test_cluster.py": "all kinds of work on a cluster that loses workers",
    "pipeline/test_connect.py": "all kinds of work behind Spark Connect",
    "pipeline/test_compare.py": "about how tests hold tables against each other",
    "pipeline/test_extra.py": "about what must be installed for any of it",
    "pipeline/test_kill.py": "kills the pipeline; about all of it",
    "pipeline/downloads/test_kill.py": "kills executors and backfills; about all of downloads",
    "pipeline/test_quarantine.py": "what cannot be read or is gone, whichever module notices",
    "pipeline/test_streaming_and_batch.py": "about all tables, however they were made",
    "pipeline/tables/test_tables.py": "all tables, against the answers",
    "pipeline/test_story.py": "about the stream that tests make tables of",
    "pipeline/test_connector_page.py": "about the documentation, and needs a Spark session",
    "router/test_routing.py": "all kinds of router, through a server",
    "slip/test_faults.py": "about all of slips",
    "slip/test_hostile.py": "what no honest service sends, whichever module refuses it",
    "slip/test_refusals.py": "what makes no sense, whichever module refuses it",
    "slip/test_races.py": "who comes second, whichever module has to notice",
    "slip/test_kill.py": "kills routers and workers; about all of slips",
    "store/test_restart.py": "every command, through engine, broker and store",
    "broker/test_rulings.py": "one test per ruling, whichever module keeps it",
    "server/test_disk_failure.py": "a disk that fails, through a server",
    "server/test_compaction.py": "the store's compaction, through a server",
    "server/test_hostile_input.py": "everything no honest client sends, whichever module refuses it",
    "server/test_produce_consume.py": "one message from end to end",
    "server/test_shutdown.py": "the end of a server, whichever module has a part in it",
    "store/test_kill.py": "kills a process; about all of the store",
    "test_crash.py": "kills a server under load; about all of it",
    "test_forked.py": "about tests/forked.py",
    "test_one_trace.py": "about the traces of all parts together",
    "test_tidy.py": "this one",
}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Return the full name of every module that `path` imports, anywhere in the file."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import; write the full name"
            assert node.module is not None
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_room_knows_only_those_below_it() -> None:
    offenders = {}
    for path in MODULES:
        known = {name.split(".")[1] for name in imports(path) if name.startswith("slipstream.")}
        forbidden = known & MAY_NOT_KNOW.get(room(path), set())
        if room(path) != "cli":
            forbidden |= known & (FOR_COMMANDS - {room(path)})
        if forbidden:
            offenders[named(path)] = forbidden
    assert offenders == {}


def test_the_broker_has_no_clock_no_disk_and_no_network() -> None:
    found = {
        named(path): {name.split(".")[0] for name in imports(path)} & OUTSIDE
        for path in MODULES
        if room(path) == "broker"
    }
    assert found, "there are no modules of the broker"
    assert {path: outside for path, outside in found.items() if outside} == {}


def test_every_room_has_its_rule() -> None:
    rooms = {room(path) for path in MODULES} - {"__init__", "__main__", "cli"}
    assert rooms == set(MAY_NOT_KNOW), "cli may know everything; every other room says what it may not"


def test_every_module_has_a_docstring() -> None:
    """The first paragraph of a package says what the package is for."""
    docstrings = {named(path): ast.get_docstring(parsed(path)) for path in MODULES}
    assert [path for path, text in docstrings.items() if not text or not (text[0].isupper() or text[0] == "`")] == []


def test_no_module_has_a_vague_name() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base", "core"}
    parts = {named(path): {part.removesuffix(".py") for part in path.relative_to(SOURCE).parts} for path in MODULES}
    assert [path for path, words in parts.items() if words & vague] == []


def test_no_module_is_too_long() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_MAX} == {}, "probably two nouns in one file"


def _mirrors_a_module(path: Path) -> bool:
    """`tests/server/test_v1_topics.py` is about `server/v1.py`: the name of a module, and an optional topic. Tests in a
    browser are about the modules of the console's pages."""
    relative = path.relative_to(TESTS)
    words = path.stem.removeprefix("test_").split("_")
    stems = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    if relative.parts[:2] == ("console", "browser"):
        static = SOURCE / "console" / "static"
        there = [static / folder / f"{stem}.js" for stem in stems for folder in ("", "lib", "parts", "pages")]
    else:
        root = ROOT if relative.parts[0] == "scripts" else SOURCE
        there = [root / relative.parent / f"{stem}.py" for stem in stems]
    return any(module.exists() for module in there)


def test_every_test_module_mirrors_a_module() -> None:
    modules = {str(path.relative_to(TESTS)): path for path in TEST_MODULES}
    offenders = [name for name, path in modules.items() if name not in NOT_MIRRORED and not _mirrors_a_module(path)]
    assert offenders == [], "mirror a module, or give the reason in NOT_MIRRORED"
    assert set(NOT_MIRRORED) - set(modules) == set(), "exceptions for files that do not exist"


HOST = re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:com|dev|io|net|org)\b")
"""The name of a machine on the internet: where packages come from is the user's choice."""


def test_no_host_is_named() -> None:
    offenders = {}
    for path in (*PAGES, *(ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.lock"))):
        text = path.read_text()
        found = HOST.findall(text)
        if "index-url" in text.replace("--no-emit-index-url", ""):
            found.append("index-url")
        if found:
            offenders[named(path)] = found
    assert offenders == {}


def test_every_page_is_plain_text() -> None:
    """No emoji, no tabs, no white space at the end of a line."""
    texts = {named(path): path.read_text() for path in PAGES}
    assert [path for path, text in texts.items() if any(ord(character) > 0x2FFF for character in text)] == []
    assert [path for path, text in texts.items() if re.search(r"[ \t]+$|\t", text, re.MULTILINE)] == []
