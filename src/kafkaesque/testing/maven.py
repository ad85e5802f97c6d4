"""Finds `java` and `mvn`, and resolves classpaths of Maven artifacts, which it caches.

Callers run the programs: `apache_kafka.py`, `zookeeper.py`, the Java client of the conformance tests.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

RESOLVE_TIMEOUT_S = 600

_HOW_TO_GET = {
    "java": "a Java runtime 17 or newer (Debian: apt install openjdk-17-jdk-headless)",
    "javac": "a Java development kit 17 or newer (Debian: apt install openjdk-17-jdk-headless)",
    "mvn": "Apache Maven (Debian: apt install maven)",
}


class JavaUnavailable(Exception):
    """A Java tool or artifact is missing; the message says how to get it."""


def require_tool(name: str) -> str:
    """The path of `name` (java, javac or mvn); JavaUnavailable says how to install it."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home is not None and name != "mvn":
        candidate = Path(java_home, "bin", name)
        if candidate.exists():
            return str(candidate)
    found = shutil.which(name)
    if found is None:
        raise JavaUnavailable(f"`{name}` is not on the PATH: install {_HOW_TO_GET[name]}")
    return found


def cache_directory() -> Path:
    """Where resolved classpaths and compiled test programs are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base, "kafkaesque")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def classpath(coordinates: Sequence[str]) -> str:
    """The classpath of `group:artifact:version` coordinates and their dependencies.

    Jars stay in the user's Maven repository; only the list is cached, and it is used only while every
    jar in it still exists.
    """
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:16]
    cached = cache_directory() / f"classpath-{digest}.txt"
    if cached.exists():
        known = cached.read_text()
        if known and all(Path(jar).exists() for jar in known.split(os.pathsep)):
            return known
    resolved = _resolve(coordinates)
    # Written to a temporary file and renamed: two test processes may resolve at the same time.
    with tempfile.NamedTemporaryFile(
        "w", dir=cached.parent, prefix=cached.name, delete=False
    ) as out:
        out.write(resolved)
    Path(out.name).replace(cached)
    return resolved


def _resolve(coordinates: Sequence[str]) -> str:
    maven = require_tool("mvn")
    with tempfile.TemporaryDirectory(prefix="kafkaesque-mvn-") as scratch:
        pom, answer = Path(scratch, "pom.xml"), Path(scratch, "classpath.txt")
        pom.write_text(_pom(coordinates))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath"]
        outcome = subprocess.run(
            [*command, f"-Dmdep.outputFile={answer}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
        if outcome.returncode != 0 or not answer.exists():
            raise JavaUnavailable(
                f"Maven could not resolve {', '.join(coordinates)}; it needs access to a Maven "
                f"repository (Maven Central, or a mirror in ~/.m2/settings.xml). "
                f"Its output ends with:\n{_last_lines(outcome.stdout, 12)}"
            )
        return answer.read_text().strip()


def _pom(coordinates: Sequence[str]) -> str:
    dependencies = ""
    for coordinate in coordinates:
        group, artifact, version = (escape(part) for part in coordinate.split(":"))
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafkaesque</groupId><artifactId>classpath</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _last_lines(text: str, count: int) -> str:
    return "\n".join(text.strip().splitlines()[-count:])
