"""Chooses between the compiled modules on a record's way and their sources.

The build compiles some modules with mypyc (hatch_build.py, docs/adr/0009): the same code, faster. The
sources run instead

- if KAFKAESQUE_PURE is set, because compiled functions can be neither traced nor replaced. The
  value `modules` stands for these modules alone; any other also replaces the hand-written C;
- if one of them was changed since the build, in an editable install. `make compile` builds them anew.

It is all or nothing: compiled modules call each other directly, past what Python imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent
MANIFEST = PACKAGE / "_compiled.json"


class SourceFinder:
    """Finds the sources of modules that are compiled as well. Python prefers the compiled ones."""

    def __init__(self, modules: frozenset[str]) -> None:
        self.modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        return spec_from_file_location(name, _source_of(name))


def choose() -> str:
    """Make imports find one or the other. Returns which, in words, for `kafkaesque version`."""
    try:
        manifest = json.loads(MANIFEST.read_bytes())
    except FileNotFoundError:
        return "sources: nothing was compiled when the package was built"
    modules: dict[str, str] = manifest["modules"]
    if os.environ.get("KAFKAESQUE_PURE"):
        reason = "KAFKAESQUE_PURE is set"
    elif manifest["is_editable"] and (changed := _first_changed(modules)) is not None:
        reason = f"{changed} was changed since the build, `make compile` builds it anew"
    else:
        return f"compiled: {len(modules)} modules"
    sys.meta_path.insert(0, SourceFinder(frozenset(modules)))
    return f"sources: {reason}"


def _first_changed(modules: dict[str, str]) -> str | None:
    for name, digest in modules.items():
        try:
            data = _source_of(name).read_bytes()
        except FileNotFoundError:
            return name
        if hashlib.sha1(data, usedforsecurity=False).hexdigest() != digest:
            return name
    return None


def _source_of(name: str) -> Path:
    return PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
