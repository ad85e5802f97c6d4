"""kafkajs, the Node client."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.clients.model import ConsumerOptions, Unavailable
from tests.conformance.clients.program import ProgramClient

from kafkaesque.testing.maven import cache_directory

SOURCES = Path(__file__).parent.parent / "node"


class KafkaJs(ProgramClient):
    name: ClassVar[str] = "kafkajs"
    codecs: ClassVar[frozenset[str]] = frozenset({"none", "gzip", "snappy"})
    lacks: ClassVar[frozenset[str]] = frozenset(
        {
            "cooperative-sticky",
            "header order",
            "null header",
            "position",
            "seek while running",
            "static membership",
            "timestamp type",
        }
    )

    def command(self) -> Sequence[str]:
        node = shutil.which("node")
        if node is None:
            raise Unavailable("`node` is not on the PATH: install Node 18 or newer with npm")
        return [node, str(installed() / "main.js"), self.bootstrap]

    def settings(self, options: ConsumerOptions) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "group": options.group,
            "session_timeout_ms": options.session_timeout_ms,
            "maxWaitTimeInMs": options.fetch_max_wait_ms,
        }
        if options.max_partition_fetch_bytes is not None:
            settings["maxBytesPerPartition"] = options.max_partition_fetch_bytes
        if options.fetch_min_bytes is not None:
            settings["minBytes"] = options.fetch_min_bytes
        return settings


def installed() -> Path:
    """The program with its node_modules, installed into the cache once."""
    files = [SOURCES / name for name in ("main.js", "package.json", "package-lock.json")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    directory = cache_directory() / f"conformance-node-{digest.hexdigest()[:16]}"
    if not directory.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("`npm` is not on the PATH: install Node 18 or newer with npm")
        with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
            made = Path(scratch, "program")
            made.mkdir()
            for file in files:
                shutil.copy(file, made)
            outcome = subprocess.run(
                [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                cwd=made,
                capture_output=True,
                text=True,
                check=False,
            )
            if outcome.returncode != 0:
                raise Unavailable(
                    "kafkajs could not be installed; it needs an npm registry within reach, "
                    f"or tools/setup-clients run once with one:\n{outcome.stderr[-800:]}"
                )
            try:
                made.rename(directory)
            except OSError:
                if not directory.exists():
                    raise
    return directory
