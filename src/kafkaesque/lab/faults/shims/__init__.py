"""Libraries put in front of libc (LD_PRELOAD), compiled from the C files here when a run needs one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_SOURCES = Path(__file__).parent


class ShimFailed(Exception):
    """The compiler refused our file; the text has its words."""


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


def impossible() -> str | None:
    """Why no shim can be made here; None if one can."""
    if not sys.platform.startswith("linux"):
        return "it needs LD_PRELOAD as Linux has it"
    if _compiler() is None:
        return "it needs a C compiler (gcc, cc or clang) to build its shim"
    return None


def build(name: str, directory: Path) -> Path:
    """Compile `name`.c into a library in `directory`."""
    library = directory / f"{name}.so"
    source = _SOURCES / f"{name}.c"
    command = [_compiler() or "cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library)]
    done = subprocess.run(
        [*command, str(source), "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ShimFailed(f"{source}: {done.stderr.strip()}")
    return library
