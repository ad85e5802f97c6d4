"""The process in which logs are cleaned: `python -m kafkaesque.broker.storage.cleaner_worker`.

A broker starts it, writes jobs to its standard input and reads results from its standard output,
each a length-prefixed msgpack value. The worker only reads segments that no longer change and writes
files under names of its own, so it may be killed at any time. It dies with its broker and runs at a
lower priority, so that compaction does not slow down producers and consumers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time
from typing import BinaryIO, Final

import msgspec

from kafkaesque.broker.storage.cleaner import CleanedSegment, Cleaning, Finished, Job
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import KafkaError

_LENGTH: Final = struct.Struct(">I")
_FILES_MAX: Final = 16
_NICENESS: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_PAUSE_SECONDS_MIN: Final = 0.01


class Order(msgspec.Struct, frozen=True, array_like=True):
    """A job and its I/O rate limit."""

    job: Job
    bytes_per_second: float


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The job was aborted; results sent before remain valid."""

    reason: str


Result = CleanedSegment | Finished | Failed

encode = msgspec.msgpack.Encoder().encode
decode_result = msgspec.msgpack.Decoder(Result).decode
_decode_order = msgspec.msgpack.Decoder(Order).decode


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def frame_size(head: bytes) -> int:
    """The body size in a frame's length prefix."""
    return int(_LENGTH.unpack(head)[0])


class RateLimiter:
    """Sleeps as needed to keep the throughput at or below `bytes_per_second`."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._ahead_seconds = 0.0
        self._looked = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        self._ahead_seconds += size_bytes / self._bytes_per_second
        if self._ahead_seconds < _PAUSE_SECONDS_MIN:
            return
        now = time.monotonic()
        self._ahead_seconds = max(0.0, self._ahead_seconds - (now - self._looked))
        self._looked = now
        if self._ahead_seconds >= _PAUSE_SECONDS_MIN:
            time.sleep(self._ahead_seconds)


def perform(order: Order, output: BinaryIO) -> None:
    """Runs the job and sends each result as it is ready."""
    cleaning = Cleaning(order.job, OpenFiles(_FILES_MAX), RateLimiter(order.bytes_per_second))
    try:
        for result in cleaning.run():
            _send(output, result)
        _send(output, cleaning.finished())
    except KafkaError as error:
        _send(output, Failed(f"{type(error).__name__}: {error}"))


def _send(output: BinaryIO, result: Result) -> None:
    output.write(frame(encode(result)))
    output.flush()


def main() -> None:
    """Runs jobs until the broker closes the pipe or dies."""
    _die_with_parent()
    # A terminal sends SIGINT to the whole process group; the broker decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        body = sys.stdin.buffer.read(frame_size(head))
        perform(_decode_order(body), sys.stdout.buffer)


def _die_with_parent() -> None:
    """Asks Linux to kill this process with its parent. Elsewhere the closed pipe ends it after its
    current job, which is harmless."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
