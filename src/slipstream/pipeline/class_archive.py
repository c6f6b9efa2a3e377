"""An archive of the classes that Spark loads, with which Java starts it in half the time.

Java writes one when a process ends that was told to, and a later one reads it. Where it does not fit any more, as Java
or Spark are others by now, Java passes over it without a word.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pyspark

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.java import cache_folder, find_java, release_of, release_text

FIRST_WITH_CACHE = 25
"""The first Java that keeps more than classes; those before it can only do with the archive that came with them."""
WRITE_TIMEOUT_S = 600.0


class Archive(msgspec.Struct, frozen=True):
    """Of one Java and one Spark."""

    path: Path
    release: int
    """Of Java."""

    @property
    def is_there(self) -> bool:
        """Not where it cannot be read either, as in another's home."""
        return os.access(self.path, os.R_OK)

    @property
    def options(self) -> str:
        """What Java is started with; nothing if there is none."""
        if not self.is_there:
            return ""
        if self.release >= FIRST_WITH_CACHE:
            return f'"-XX:AOTCache={self.path}" -Xlog:aot*=off -Xlog:cds*=off'
        return f'"-XX:SharedArchiveFile={self.path}" -Xlog:cds*=off'

    def writing_options(self, to: Path) -> str:
        """What one is started with that is to write it."""
        option = "AOTCacheOutput" if self.release >= FIRST_WITH_CACHE else "ArchiveClassesAtExit"
        return f'"-XX:{option}={to}"'

    def write(self) -> None:
        """Starts Spark for it, and has it do what the pipeline does; takes half a minute. Raises PipelineError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="writing-", dir=self.path.parent) as folder:
            made = Path(folder) / self.path.name
            done = subprocess.run(
                [sys.executable, "-m", "slipstream.pipeline.class_archive_writer", str(made)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=WRITE_TIMEOUT_S,
            )
            if done.returncode or not made.is_file():
                said = "\n".join(done.stdout.strip().splitlines()[-10:]) or "it said nothing"
                raise PipelineError(
                    f"the Java of {find_java()} has written no archive, and Spark starts as before; it said:\n{said}"
                )
            made.rename(self.path)


def archive_for(java: Path) -> Archive:
    """Whether it is there or not. Java takes none of other files, or of other times, than those it was made of."""
    spark = Path(pyspark.__file__).parent
    jars = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in sorted((spark / "jars").iterdir())]
    what = f"{spark}\n{jars}\n{java.resolve()}\n{release_text(java)}"
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    return Archive(cache_folder(os.environ) / "spark" / f"{name}.classes", release_of(java))
