"""Libraries preloaded in front of libc (LD_PRELOAD), compiled from the C files here on demand."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

_SOURCES = Path(__file__).parent


class ShimFailed(Exception):
    """The compiler rejected a shim; the message has its output."""


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


def impossible() -> str | None:
    """The reason why no shim can be built here; None if one can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux for LD_PRELOAD"
    if _compiler() is None:
        return "it needs a C compiler (gcc, cc or clang) to build its shim"
    return None


def build(name: str, directory: Path) -> Path:
    """Compile `name`.c into a library in `directory`, and return its path."""
    library = directory / f"{name}.so"
    source = _SOURCES / f"{name}.c"
    command = [_compiler() or "cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library)]
    done = subprocess.run(
        [*command, str(source), "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ShimFailed(f"{source}: {done.stderr.strip()}")
    return library


class NumberShim:
    """A shim that reads one number from a file while its process runs; `set` changes the number.

    The shim finds the file through the environment variable `variable`.
    """

    def __init__(self, name: str, variable: str, directory: Path, node: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / f"{name}-{node}"
        self._file.write_bytes(bytes(8))
        library = directory / f"{name}.so"
        if not library.exists():
            build(name, directory)
        self.environment = {"LD_PRELOAD": str(library), variable: str(self._file)}

    def set(self, value: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", value))


def clock_shim(directory: Path, node: int) -> NumberShim:
    """Shifts the wall clock by so many nanoseconds."""
    return NumberShim("clock", "KAFKAESQUE_CLOCK", directory, node)


def slow_sync_shim(directory: Path, node: int) -> NumberShim:
    """Makes every sync take so many microseconds longer."""
    return NumberShim("slow", "KAFKAESQUE_SLOW", directory, node)
