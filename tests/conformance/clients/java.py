"""Apache Kafka's own Java client, in the newest version and in the one that Spark 4 carries."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.clients.model import ConsumerOptions, Unavailable
from tests.conformance.clients.program import ProgramClient

from kafkaesque.testing.maven import JavaUnavailable, cache_directory, classpath, require_tool

SOURCES = Path(__file__).parent.parent / "java"

_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaClient(ProgramClient):
    version: ClassVar[str]

    def command(self) -> Sequence[str]:
        try:
            jars = classpath(coordinates(self.version))
            classes = compiled(jars)
            java = require_tool("java")
        except JavaUnavailable as reason:
            raise Unavailable(str(reason)) from reason
        path = os.pathsep.join((str(classes), jars))
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return [java, *flags, "-cp", path, "Conformance", self.bootstrap]

    def settings(self, options: ConsumerOptions) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "partition.assignment.strategy": _STRATEGIES[options.strategy],
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": min(500, options.session_timeout_ms // 4),
            "fetch.max.wait.ms": options.fetch_max_wait_ms,
            "allow.auto.create.topics": options.allow_auto_create,
        }
        optional = {
            "group.id": options.group,
            "group.instance.id": options.instance_id,
            "max.partition.fetch.bytes": options.max_partition_fetch_bytes,
            "fetch.min.bytes": options.fetch_min_bytes,
        }
        return settings | {name: value for name, value in optional.items() if value is not None}


class Java43(JavaClient):
    name: ClassVar[str] = "java-4.3.0"
    version: ClassVar[str] = "4.3.0"


class Java39(JavaClient):
    name: ClassVar[str] = "java-3.9.0"
    version: ClassVar[str] = "3.9.0"


def coordinates(version: str) -> Sequence[str]:
    return (
        f"org.apache.kafka:kafka-clients:{version}",
        "com.fasterxml.jackson.core:jackson-databind:2.18.2",
        "org.slf4j:slf4j-nop:1.7.36",
    )


def compiled(jars: str) -> Path:
    """The program's classes for this classpath, compiled once and kept in the cache."""
    digest = hashlib.sha256(jars.encode())
    sources = sorted(SOURCES.glob("*.java"))
    for source in sources:
        digest.update(source.read_bytes())
    classes = cache_directory() / f"conformance-java-{digest.hexdigest()[:16]}"
    if not classes.exists():
        compiler = require_tool("javac")
        with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
            made = Path(scratch, "classes")
            subprocess.run(
                [compiler, "-nowarn", "-Xlint:-deprecation", "-cp", jars, "-d", made, *sources],
                check=True,
            )
            # A rename into place: two test processes may compile at the same time.
            try:
                made.rename(classes)
            except OSError:
                if not classes.exists():
                    raise
    return classes
