"""Resolve pyproject.toml into requirements/runtime.lock and requirements/dev.lock, with hashes.

What is locked stays as it is unless `--upgrade` is given. No index address is written: a lock must
serve on any machine that reaches a registry by its own configuration.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILE = [
    *(sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes"),
    *("--no-emit-index-url", "--no-emit-trusted-host", "--strip-extras", "--allow-unsafe"),
]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime, dev = "requirements/runtime.lock", "requirements/dev.lock"
    asked = sys.argv[1:]
    subprocess.run([*COMPILE, *asked, "-o", runtime, "pyproject.toml"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as directory:
        wanted = Path(directory) / "dev.in"
        # The build backend is locked as well: an editable install then needs nothing else.
        names = [*project["dependency-groups"]["dev"], "hatchling", "editables"]
        wanted.write_text("\n".join(names) + "\n")
        subprocess.run(
            [
                *COMPILE,
                *asked,
                "--all-extras",
                "-c",
                runtime,
                "-o",
                dev,
                "pyproject.toml",
                str(wanted),
            ],
            cwd=ROOT,
            check=True,
        )


if __name__ == "__main__":
    main()
