"""The jars of Spark's own Kafka connector: finds, downloads and verifies them.

A lock table lists each jar with its SHA-512; no other jar is ever passed to Spark. Jars are passed as
local files (`spark.jars`): `spark.jars.packages` would call a resolver at every start, and its errors
go to a stream that Python does not see.
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
from kafkaesque.pipeline.paths import cache_directory

CENTRAL = "https://repo.maven.apache.org/maven2"
JARS_VARIABLE = "KAFKAESQUE_SPARK_JARS"
"""Names a directory that already has the jars."""
REPOSITORY_VARIABLE = "KAFKAESQUE_MAVEN_REPO"

_DOWNLOAD_TIMEOUT_S = 60
_MAVEN_TIMEOUT_S = 300
_CHUNK_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of Maven Central and its checksum."""

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


# The token provider that matches Spark 4.2.0 is not on every mirror. 4.0.0 works with the connector
# 4.2.0 (tested: write, read and stream against Apache Kafka 4.3.1).
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
"""By the exact version of pyspark. Versions that are not listed use the Python engine."""


def locked(spark_version: str) -> Sequence[Jar]:
    """The jars for a version of pyspark. Raises JarsUnavailable if none are locked."""
    jars = LOCK.get(spark_version)
    if jars is None:
        raise JarsUnavailable(
            f"there are no locked connector jars for Spark {spark_version}",
            f"supported versions: {', '.join(LOCK)}; the Python engine needs no jars",
        )
    return jars


def find(spark_version: str, environment: Mapping[str, str]) -> list[Path]:
    """The verified jars on this machine. Raises JarsUnavailable that names the first missing one."""
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
    notify: Callable[[str], None] = lambda _text: None,
) -> list[Path]:
    """The verified jars. Missing ones are downloaded over HTTPS, or with `mvn` if that fails."""
    base = repository or environment.get(REPOSITORY_VARIABLE) or CENTRAL
    cache = _cache(spark_version, environment)
    paths = []
    for jar in locked(spark_version):
        path = _find_one(jar, search_path(spark_version, environment))
        if path is None:
            notify(f"fetching {jar.coordinate}")
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
    """Raises JarsUnavailable unless the file has the locked checksum."""
    digest = hashlib.sha512()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_SIZE_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != jar.sha512:
        raise JarsUnavailable(
            f"the SHA-512 of {path} differs from the locked {jar.coordinate}",
            "remove the file and fetch it again",
        )


def _fetch_one(jar: Jar, base: str, cache: Path) -> Path:
    temporary = cache / f".{jar.file_name}.{os.getpid()}"
    try:
        reason = _download(f"{base}/{jar.path}", temporary)
        if reason is not None:
            maven_reason = _copy_by_maven(jar, temporary)
            if maven_reason is not None:
                raise JarsUnavailable(
                    f"cannot fetch {jar.coordinate}: {reason}; {maven_reason}",
                    f"set {REPOSITORY_VARIABLE} to a mirror, or {JARS_VARIABLE} to a directory "
                    "of jars; the Python engine needs no jars",
                )
        verify(jar, temporary)
        return temporary.replace(cache / jar.file_name)
    finally:
        temporary.unlink(missing_ok=True)


def _download(url: str, target: Path) -> str | None:
    """Returns None on success, else the error."""
    if not url.startswith(("https://", "http://", "file://")):
        return f"{url} is not a URL with https, http or file"
    try:
        with (
            urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as response,  # noqa: S310
            target.open("wb") as file,
        ):
            shutil.copyfileobj(response, file, _CHUNK_SIZE_BYTES)
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"
    return None


def _copy_by_maven(jar: Jar, target: Path) -> str | None:
    """`mvn` may have mirrors and proxies configured. Returns None on success, else the error."""
    maven = shutil.which("mvn")
    if maven is None:
        return "`mvn` is not on the PATH"
    # A separate directory: no unverified file may be where jars are searched.
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
