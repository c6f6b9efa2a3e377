"""Environments as `pip install 'slipstream[…]'` makes them, without a network.

Each is a virtual environment of its own, with the built wheel and links to the distributions that its extra requires,
directly or not. They come from the environment of the tests, where all of them are installed; nothing else of that is
in it, so a module that no requirement brings cannot be imported.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
OURS = "slipstream"


def build_wheel(folder: Path) -> Path:
    """Build the wheel, unpack it, which is how a wheel of pure Python is installed, and return the directory."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    unpacked = folder / "unpacked"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(unpacked)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(unpacked)], check=True)
    return unpacked


def make_environment(folder: Path, unpacked: Path, extra: str) -> Path:
    """Make an environment with the wheel and the requirements of an extra, and return its directory of programs."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for top in unpacked.iterdir():
        (site / top.name).symlink_to(top)
    (info,) = unpacked.glob("*.dist-info")
    for each in _requirements(Distribution.at(info), extra):
        _link(each, site)
    program = folder / "bin" / OURS
    program.write_text(f"#!{folder}/bin/python\nfrom {OURS}.cli import main\nmain()\n")
    program.chmod(0o755)
    return folder / "bin"


def _requirements(wheel: Distribution, extra: str) -> list[Distribution]:
    """Return all distributions that an extra of the wheel requires; an empty text is no extra."""
    found: dict[str, Distribution] = {}
    visited = set()
    left = [(wheel, extra)]
    while left:
        of, asked = left.pop()
        for text in of.requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": asked}):
                continue
            name = canonicalize_name(requirement.name)
            brought = wheel if name == OURS else distribution(name)
            assert requirement.specifier.contains(brought.version), f"{text} is required; {brought.version} is here"
            if brought is not wheel:
                found[name] = brought
            for inner in ("", *requirement.extras):
                if (name, inner) not in visited:
                    visited.add((name, inner))
                    left.append((brought, inner))
    return list(found.values())


def _link(brought: Distribution, site: Path) -> None:
    """Link the files of a distribution: a package as a whole, the contents of a namespace package one by one."""
    files = [PurePosixPath(str(each)) for each in brought.files or ()]
    assert files, f"{brought.name} has no list of its files"
    packages = {each.parent for each in files if each.name == "__init__.py" or each.parent.suffix == ".dist-info"}
    for each in sorted({_outermost(file, packages) for file in files if file.parts[0] != ".."}):
        link = site / each
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():  # a file that several distributions have
            link.symlink_to(Path(str(brought.locate_file(str(each)))))


def _outermost(file: PurePosixPath, packages: set[PurePosixPath]) -> PurePosixPath:
    """Return the outermost package that has the file, or the file itself."""
    return next((each for each in _outside_in(file) if each in packages), file)


def _outside_in(file: PurePosixPath) -> Iterator[PurePosixPath]:
    yield from reversed(file.parents[:-1])
