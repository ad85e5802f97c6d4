"""The SPARK_HOME that the JVM is started with: pyspark's own, less its zipped Python.

Spark puts `SPARK_HOME/python/lib/pyspark.zip` before everything else on the path of each Python
process it starts, and a zip keeps no compiled modules: every start compiles pyspark anew (1.5 s of
CPU against 0.5 s, and a query starts five; Spark gives up on one that takes ten seconds). Where
the zip is not there (PythonUtils.sparkPythonPath), they import the installed package.
"""

from __future__ import annotations

import os
import shutil
import zlib
from importlib.util import find_spec
from pathlib import Path

_LINKED = ("bin", "jars", "sbin")


def slim_home(cache: Path) -> Path | None:
    """A SPARK_HOME under `cache` for the installed pyspark; None where pyspark brings no Spark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    if not (package / "bin" / "spark-submit").is_file() or not (package / "jars").is_dir():
        return None
    # One for each installation: several environments may share a cache.
    home = cache / f"spark-home-{zlib.crc32(str(package).encode()):08x}"
    if not _leads_to(home, package):
        _link(home, package)
    return home


def _leads_to(home: Path, package: Path) -> bool:
    return all(
        (home / name).resolve() == package / name for name in _LINKED if (package / name).exists()
    )


def _link(home: Path, package: Path) -> None:
    """Made aside and renamed: two processes may start their first session at the same time."""
    aside = home.with_name(f".{home.name}.{os.getpid()}")
    aside.mkdir(parents=True)
    for name in _LINKED:
        if (package / name).exists():
            (aside / name).symlink_to(package / name)
    try:
        if home.exists() and not _leads_to(home, package):
            shutil.rmtree(home)
        aside.rename(home)
    except OSError:
        # The other was first, with the same links.
        shutil.rmtree(aside, ignore_errors=True)
        if not _leads_to(home, package):
            raise
