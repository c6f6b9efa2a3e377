"""Our package, for executors that do not have it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import slipstream

PACKAGES = ("slipstream", "pyspark_slipstream")
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same package makes the same archive: executors keep what they have by its content."""


def pack(folder: Path) -> Path:
    """The sources of this very installation, as an archive that Python imports from."""
    root = Path(slipstream.__file__).parent.parent
    return _zipped(folder / f"slipstream-{slipstream.__version__}.zip", root, PACKAGES)


def pack_module(module: ModuleType, folder: Path) -> Path | None:
    """A module or package that somebody has beside his program, as a file that executors import from; None for what is
    ours, or is installed: executors have what they need of that."""
    if module.__name__ in PACKAGES or module.__file__ is None:
        return None
    file = Path(module.__file__).resolve()
    if {"site-packages", "dist-packages"} & set(file.parts):
        return None
    if file.name != "__init__.py":
        return file
    return _zipped(folder / f"{module.__name__}.zip", file.parent.parent, [module.__name__])


def _zipped(path: Path, root: Path, packages: Sequence[str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in packages:
            for file in sorted((root / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    info = zipfile.ZipInfo(str(file.relative_to(root)), _TIME)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, file.read_bytes())
    return path
