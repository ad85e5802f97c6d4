"""Builds a log next to the one in use and then replaces that one as a whole.

    <partition>             the log in use
    <partition>.incoming    the log being built; unusable until it is complete
    <partition>.replaced    the previous log, until it is deleted

The raft journal decides whether an incoming log is valid: a reset to a start whose batches are kept
is saved there when the incoming log is complete and durable, and before anything is renamed. So a
crash leaves either no such reset, and the incoming log is garbage; or a reset, and `finish`
completes the swap. All functions block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkaesque.broker.replication.rules.journal_records import GroupFacts
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import iter_batches, verify_crc

_INCOMING: Final = ".incoming"
_REPLACED: Final = ".replaced"


class Incoming:
    """Batches received from a peer: [`first_offset`, `end_offset`) of its log, gaps included."""

    def __init__(
        self, directory: str, config: LogConfig, files: OpenFiles, first_offset: Offset
    ) -> None:
        self._directory = directory
        self._first_offset = first_offset
        drop_incoming(directory, files.calls)
        self._log = Log.open(directory + _INCOMING, config, files, clean=False)
        self._is_begun = False

    def append(self, data: bytes, now_ms: int) -> Offset:
        """Appends batches and returns the offset of the next one to fetch. Raises CorruptMessage if
        the bytes are not whole batches."""
        for position, header in iter_batches(data):
            verify_crc(data, header, position)
            if not self._is_begun:
                self._log.reset_to(min(header.base_offset, self._first_offset))
                self._is_begun = True
            if header.base_offset < self._log.log_end_offset:
                raise CorruptMessage(f"offset {header.base_offset} was received twice")
            batch = memoryview(data)[position : position + header.size_bytes]
            self._log.append(batch, header, now_ms)
        return self._log.log_end_offset

    def finish(self, end_offset: Offset) -> None:
        """Makes the log durable. The next append begins a segment at `end_offset`."""
        log = self._log
        if log.log_end_offset != end_offset:
            raise CorruptMessage(f"{log.directory} ends at {log.log_end_offset}, not {end_offset}")
        log.delete_before(self._first_offset)
        log.roll()
        log.close(clean=True)

    def discard(self) -> None:
        self._log.delete()


def replace(log: Log) -> Log:
    """Durably puts the incoming log in place of `log`, which is open. Raises StorageFailed."""
    directory, tail = str(log.directory), log.tail
    log.abandon()
    swap(directory, log.files.calls)
    incoming = Log.open(directory, log.config, log.files, clean=False)
    if tail is not None:
        tail.follow(incoming)
    return incoming


def swap(directory: str, calls: SystemCalls) -> None:
    """Durably puts the incoming log in place of the one in use. Raises StorageFailed."""
    try:
        for step in _steps(directory, calls):
            calls.rename(*step)
            calls.sync_directory(directory.rpartition("/")[0])
        calls.remove_tree(directory + _REPLACED)
    except OSError as error:
        raise StorageFailed(f"cannot replace {directory}: {error}") from error


def _steps(directory: str, calls: SystemCalls) -> Iterator[tuple[str, str]]:
    if calls.exists(directory):
        calls.remove_tree(directory + _REPLACED)
        yield directory, directory + _REPLACED
    yield directory + _INCOMING, directory


def finish(directory: str, facts: GroupFacts | None, calls: SystemCalls) -> None:
    """Completes a swap that a crash interrupted. Call it before a log is opened."""
    if not calls.exists(directory + _INCOMING):
        calls.remove_tree(directory + _REPLACED)
    elif facts is not None and facts.is_resetting and facts.start.is_kept:
        swap(directory, calls)
    else:
        drop_incoming(directory, calls)


def drop_incoming(directory: str, calls: SystemCalls) -> None:
    calls.remove_tree(directory + _INCOMING)
