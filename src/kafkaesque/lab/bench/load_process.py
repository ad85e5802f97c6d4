"""Starts load processes and reads the line of JSON that each prints at its end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kafkaesque.lab.bench.raw_load import LoadFailed

LOAD_TIMEOUT_S = 600.0
_CHUNK = bytes(1 << 20)


def run_load(kind: str, spec: Mapping[str, Any]) -> dict[str, float]:
    """Run one load to its end; LoadFailed with its error if it failed."""
    done = subprocess.run(
        _command(kind, spec),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    return _figures(kind, done.stdout.decode(errors="replace"))


class HeldLoad:
    """A load that keeps connections or group members open until `release`."""

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self._kind = kind
        self._process = subprocess.Popen(
            _command(kind, spec), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_held(self) -> dict[str, float]:
        return _figures(self._kind, self._stdout().readline().decode())

    def release(self) -> dict[str, float]:
        """End the load; returns its figures."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        text = self._stdout().read().decode()
        self._stdout().close()
        self._process.wait(LOAD_TIMEOUT_S)
        return _figures(self._kind, text)

    def abandon(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _stdout(self) -> IO[bytes]:
        if self._process.stdout is None:
            raise LoadFailed("the load process has no standard output")
        return self._process.stdout


class BackgroundLoad:
    """A load that runs beside the measurement until `end`."""

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self._kind = kind
        self._process = subprocess.Popen(
            _command(kind, spec), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )

    def end(self) -> dict[str, float]:
        """Stop after the requests in flight; returns the figures."""
        self._process.terminate()
        text, _ = self._process.communicate(timeout=LOAD_TIMEOUT_S)
        return _figures(self._kind, text.decode())

    def abandon(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _command(kind: str, spec: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", "kafkaesque.lab.bench.load", kind, json.dumps(spec)]


def _figures(kind: str, text: str) -> dict[str, float]:
    lines = text.strip().splitlines()
    try:
        figures: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": "no answer"}
    except json.JSONDecodeError:
        figures = {"error": lines[-1]}
    if "error" in figures:
        raise LoadFailed(f"{kind} load: {figures['error']}")
    return figures


def warm_page_cache(directory: Path, size_bytes: int) -> None:
    """Write a file of `size_bytes` and delete it again.

    A virtual machine gets its memory page by page, which costs ten times as much as writing to it, and may
    return free pages: the first server to write would pay for all. Measured: 4.5 CPU-s for a GB in new
    pages, 0.3 in pages used a moment ago. So this runs right before each measurement.
    """
    scratch = directory / "warm"
    directory.mkdir(parents=True, exist_ok=True)
    with scratch.open("wb", buffering=0) as out:
        for _ in range(size_bytes // len(_CHUNK)):
            out.write(_CHUNK)
    scratch.unlink()
