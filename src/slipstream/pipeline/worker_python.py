"""The Python that Spark starts on this machine, without the copy of PySpark that Spark puts in front of it.

The copy is a zip. What Python imports from one it compiles, in every process anew: a second for each of the nine that a
pipeline starts. What is installed is the same, and compiled already; so a script starts Python that takes the copy out
of its path.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import sys
import tempfile
from pathlib import Path

import pyspark

from slipstream.pipeline.java import cache_folder

log = logging.getLogger(__name__)

# Only of the PySpark that is installed for this Python: of another Spark the zip may be all there is.
_SCRIPT = """\
#!/bin/sh
# Starts Python for Spark without the zips that it puts in front of what is installed: Python compiles them every time.
kept=
IFS=:
set -f
for each in $PYTHONPATH; do
  case $each in
    {zips}*.zip) ;;
    *) kept=$kept${{kept:+:}}$each ;;
  esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


def worker_python() -> str:
    """The path of such a script; of Python itself where there cannot be one. Written once, and kept."""
    zips = Path(pyspark.__file__).parent / "python" / "lib"
    text = _SCRIPT.format(zips=shlex.quote(f"{zips}/"), python=shlex.quote(sys.executable))
    place = cache_folder(os.environ) / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        if not place.is_file():
            _write(place, text)
    except OSError as error:
        log.debug("Spark starts %s as it is: %s", sys.executable, error)
        return sys.executable
    # Where nothing may be run from, as from some homes, even the permission does not help.
    return str(place) if os.access(place, os.X_OK) else sys.executable


def _write(place: Path, text: str) -> None:
    """Raises OSError. It is whole when it has its name: another process may take it in the same moment."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", prefix=f"{place.name}.", dir=place.parent, delete=False) as file:
        file.write(text)
    made = Path(file.name)
    made.chmod(0o755)
    made.rename(place)
