"""Our package, for executors that do not have it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import slipstream

PACKAGES = ("slipstream", "pyspark_slipstream")
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same package makes the same archive: executors keep what they have by its content."""


def pack(folder: Path) -> Path:
    """The sources of this very installation, as an archive that Python imports from."""
    path = folder / f"slipstream-{slipstream.__version__}.zip"
    root = Path(slipstream.__file__).parent.parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    info = zipfile.ZipInfo(str(file.relative_to(root)), _TIME)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, file.read_bytes())
    return path
