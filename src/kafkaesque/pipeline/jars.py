"""Spark's own Kafka connector: which jars it is, where they are, how they are fetched and checked.

A lock table names each jar with its SHA-512; nothing else is ever passed to Spark. Jars go in as
local files (`spark.jars`): `spark.jars.packages` would ask a resolver at every start, and fail
with a message on a stream that Python does not see.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkaesque.pipeline.errors import JarsUnavailable
from kafkaesque.pipeline.places import cache_directory

CENTRAL = "https://repo.maven.apache.org/maven2"
JARS_VARIABLE = "KAFKAESQUE_SPARK_JARS"
"""A directory that holds the jars already."""
REPOSITORY_VARIABLE = "KAFKAESQUE_MAVEN_REPO"

_DOWNLOAD_TIMEOUT_S = 60
_MAVEN_TIMEOUT_S = 300
_CHUNK_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Jar:
    """One artefact of Maven Central and what its bytes must be."""

    group: str
    artifact: str
    version: str
    sha512: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def path(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


# The release of the token provider that matches Spark 4.2.0 is not on every mirror; 4.0.0 is what
# resolves beside the connector 4.2.0 (run: write, read and stream against Apache Kafka 4.3.1).
LOCK: Mapping[str, Sequence[Jar]] = {
    "4.2.0": (
        Jar(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.13",
            "4.2.0",
            "509fd0241789c2df759cc69ca5c3167c351476fb13ba47e621962bedc9145e8d"
            "34eb4b46bad024f95caa65cef12fd47476c08e398c0839b4645b3549d402fa58",
        ),
        Jar(
            "org.apache.spark",
            "spark-token-provider-kafka-0-10_2.13",
            "4.0.0",
            "03c63663e1fe974b55d25ff000d5bdcfa6414766a225ab99dec43db6fc09794d"
            "499f100e168ad533d6ce3cca224f7d6916a5fa83eb8be6eea60f5d2b6b9605a2",
        ),
        Jar(
            "org.apache.kafka",
            "kafka-clients",
            "3.9.1",
            "0b95bb53006888a5409f6fced2d0e03875a4ce19dcccb8b635ba3a6748247523"
            "6cf8a33c40709641222dd7556fc0ebbff682a046929134383b1a064e78ab12eb",
        ),
        Jar(
            "org.apache.commons",
            "commons-pool2",
            "2.12.1",
            "186dabefa07a38cc106e5aca3fcec6d2d8c79fc2787d448632c24a61cad3574c"
            "53809895f85181ba097012b60a86116eec22ae3ab4c6e47ac7dddac00a0b71a7",
        ),
    ),
}
"""By the exact release of pyspark. A release that is not here has the Python engine."""


def locked(spark_version: str) -> Sequence[Jar]:
    """The jars for a release of pyspark, or `JarsUnavailable`."""
    jars = LOCK.get(spark_version)
    if jars is None:
        raise JarsUnavailable(
            f"no connector is locked for Spark {spark_version}",
            f"locked are {', '.join(LOCK)}; the Python engine needs none",
        )
    return jars


def find(spark_version: str, environment: Mapping[str, str]) -> list[Path]:
    """The verified jars on this machine, or `JarsUnavailable` that names what is missing."""
    found = []
    for jar in locked(spark_version):
        path = _find_one(jar, search_path(spark_version, environment))
        if path is None:
            raise JarsUnavailable(
                f"{jar.file_name} is not on this machine", "`kafkaesque pipeline jars --fetch`"
            )
        found.append(path)
    return found


def search_path(spark_version: str, environment: Mapping[str, str]) -> list[Path]:
    named = environment.get(JARS_VARIABLE)
    return [*([Path(named)] if named else []), _cache(spark_version, environment)]


def fetch(
    spark_version: str,
    environment: Mapping[str, str],
    *,
    repository: str | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> list[Path]:
    """The verified jars, those that are missing downloaded: over HTTPS, else by `mvn`."""
    base = repository or environment.get(REPOSITORY_VARIABLE) or CENTRAL
    cache = _cache(spark_version, environment)
    paths = []
    for jar in locked(spark_version):
        path = _find_one(jar, search_path(spark_version, environment))
        if path is None:
            tell(f"fetching {jar.coordinate}")
            cache.mkdir(parents=True, exist_ok=True)
            path = _fetch_one(jar, base, cache)
        paths.append(path)
    return paths


def _cache(spark_version: str, environment: Mapping[str, str]) -> Path:
    return cache_directory(environment) / "jars" / f"spark-{spark_version}"


def _find_one(jar: Jar, directories: Sequence[Path]) -> Path | None:
    for directory in directories:
        path = directory / jar.file_name
        if path.is_file():
            verify(jar, path)
            return path
    return None


def verify(jar: Jar, path: Path) -> None:
    """JarsUnavailable unless the file is exactly the jar that was locked."""
    digest = hashlib.sha512()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_SIZE_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != jar.sha512:
        raise JarsUnavailable(
            f"{path} is not the {jar.coordinate} that was locked: its SHA-512 differs",
            "remove the file and fetch it again",
        )


def _fetch_one(jar: Jar, base: str, cache: Path) -> Path:
    aside = cache / f".{jar.file_name}.{os.getpid()}"
    try:
        reason = _download(f"{base}/{jar.path}", aside)
        if reason is not None:
            maven_reason = _copy_by_maven(jar, aside)
            if maven_reason is not None:
                raise JarsUnavailable(
                    f"cannot fetch {jar.coordinate}: {reason}; {maven_reason}",
                    f"set {REPOSITORY_VARIABLE} to a mirror, or {JARS_VARIABLE} to a directory "
                    "of jars; the Python engine needs none",
                )
        verify(jar, aside)
        return aside.replace(cache / jar.file_name)
    finally:
        aside.unlink(missing_ok=True)


def _download(url: str, target: Path) -> str | None:
    """None when done, otherwise why not."""
    if not url.startswith(("https://", "http://", "file://")):
        return f"{url} is not a web address"
    try:
        with (
            urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as answer,  # noqa: S310
            target.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file, _CHUNK_SIZE_BYTES)
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"
    return None


def _copy_by_maven(jar: Jar, target: Path) -> str | None:
    """`mvn` knows mirrors and proxies that we do not. None when done, otherwise why not."""
    maven = shutil.which("mvn")
    if maven is None:
        return "`mvn` is not on the PATH"
    # A directory of its own: nothing that was not verified may lie where jars are looked for.
    directory = target.with_name(f"{target.name}.mvn")
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={jar.coordinate}"]
    try:
        outcome = subprocess.run(
            [*command, f"-DoutputDirectory={directory}"],
            capture_output=True,
            text=True,
            timeout=_MAVEN_TIMEOUT_S,
            check=False,
        )
        if outcome.returncode != 0:
            return f"mvn: {(outcome.stdout.strip().splitlines() or ['failed'])[0]}"
        (directory / jar.file_name).replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"mvn: {error}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return None
