"""Chooses between the compiled modules on a record's way and their sources.

The build compiles some modules with mypyc (hatch_build.py, docs/adr/0009): the same code, faster. It puts
them into a directory of their own, `_compiled/TAG-DIGEST`: TAG is the interpreter, DIGEST the state of the
sources, or `installed` in a wheel. So Python finds the sources, unless a finder finds that directory. The
sources run

- if KAFKAESQUE_PURE is set, because compiled functions can be neither traced nor replaced. With the
  value `modules` only the hand-written C is still used, with any other value nothing compiled is;
- if one of them was changed since the build. `make compile` builds them again.

It is all or nothing: compiled modules call each other directly, past what Python imported.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PACKAGE = Path(__file__).parent
TAG: str = (sysconfig.get_config_var("EXT_SUFFIX") or "").strip(".").removesuffix(".so")
SOURCES = ("model", "records", "wire", "service", "broker")
"""The packages with the compiled modules and what these import: constants and types of imported modules
are compiled in."""


class Build(NamedTuple):
    """Whether the modules on a record's way run compiled."""

    is_compiled: bool
    text: str
    fix: str = ""
    """How to get the compiled modules, if they do not run."""


class CompiledFinder:
    """Finds compiled modules before Python finds their sources."""

    def __init__(self, directory: Path) -> None:
        self.files = {path.name.removesuffix(".so"): path for path in directory.glob("*.so")}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def choose() -> Build:
    """Make imports find the compiled modules, if they fit the sources."""
    if os.environ.get("KAFKAESQUE_PURE"):
        return Build(False, "sources, because KAFKAESQUE_PURE is set", "unset KAFKAESQUE_PURE")
    if not (PACKAGE / "_compiled").is_dir():
        fix = "install a C compiler, then this package again"
        return Build(False, "sources, because the package was built without a C compiler", fix)
    directory = PACKAGE / "_compiled" / f"{TAG}-installed"
    if not directory.is_dir():
        directory = PACKAGE / "_compiled" / f"{TAG}-{digest_sources(PACKAGE)}"
    if not directory.is_dir():
        return Build(False, "sources, because they were changed since the build", "make compile")
    finder = CompiledFinder(directory)
    sys.meta_path.insert(0, finder)
    count = sum(name.startswith("kafkaesque.") for name in finder.files)
    return Build(True, f"{count} compiled modules")


def digest_sources(package: Path) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    builder = package.parent.parent / "hatch_build.py"
    if builder.exists():
        digest.update(builder.read_bytes())  # which modules, and how they are compiled
    for name in SOURCES:
        for path in sorted((package / name).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
