"""franz-go, the Go client."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.clients.model import ConsumerOptions, Unavailable
from tests.conformance.clients.program import ProgramClient

from kafkaesque.testing.maven import cache_directory

SOURCES = Path(__file__).parent.parent / "go"


class FranzGo(ProgramClient):
    name: ClassVar[str] = "franz-go"
    lacks: ClassVar[frozenset[str]] = frozenset({"position"})

    def command(self) -> Sequence[str]:
        return [str(compiled()), self.bootstrap]

    def settings(self, options: ConsumerOptions) -> dict[str, Any]:
        return {name: value for name, value in asdict(options).items() if value is not None}


def compiled() -> Path:
    """The program, built once and kept in the cache."""
    digest = hashlib.sha256()
    for source in sorted((*SOURCES.glob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum")):
        digest.update(source.read_bytes())
    binary = cache_directory() / f"conformance-go-{digest.hexdigest()[:16]}"
    if not binary.exists():
        compiler = shutil.which("go")
        if compiler is None:
            raise Unavailable(
                "`go` is not on the PATH: install Go 1.26 or newer (https://go.dev/dl)"
            )
        with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
            made = Path(scratch, "program")
            outcome = subprocess.run(
                [compiler, "build", "-o", made, "."],
                cwd=SOURCES,
                env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false"},
                capture_output=True,
                text=True,
                check=False,
            )
            if outcome.returncode != 0:
                raise Unavailable(
                    "franz-go could not be built; it needs a Go module proxy within reach "
                    f"(GOPROXY), or tools/setup-clients run once with one:\n{outcome.stderr[-800:]}"
                )
            made.replace(binary)
    return binary
