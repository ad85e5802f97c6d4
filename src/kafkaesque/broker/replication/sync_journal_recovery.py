"""Recovers logs from the sync journal files that a crash left.

This runs before any log is opened for use. Each log with batches in these files is opened as it is,
gets the batches it lacks, and is synced. Then the files are removed. A crash during recovery is
harmless: the next recovery skips batches that a log already has.

A log's content is always a prefix of the journal's batches with the cuts applied, because a cut is
durable in the journal before anything is appended after it. So a gap between the two is damage, as
is a durable block that cannot be read. In either case the node does not start, because it would
lose acknowledged records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kafkaesque.broker.replication.rules.sync_journal_records import JournaledLog, replay
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.records.batch import BatchHeader, iter_batches

_log = logging.getLogger("kafkaesque.broker.replication")

FILE_PREFIX: Final = "sync-"
FILE_SUFFIX: Final = ".journal"


def recover_sync_journal(
    directory: Path | str, files: OpenFiles, starts: Mapping[GroupId, Offset]
) -> None:
    """Brings the logs of this node's groups up to what was durable. Blocking.

    `starts` maps each group to the offset at which its entries begin (`RaftJournal.starts`). Raises
    CorruptMessage with the damaged position, or StorageFailed on a disk error.
    """
    try:
        paths = list_files(str(directory), files)
        if not paths:
            return
        logs = read_files(paths, files)
        data_path = os.path.dirname(str(directory))
        count = 0
        for group in sorted(logs.keys() & starts.keys()):
            count += _recover_log(data_path, logs[group], files, starts[group])
        _log.info("completed %d logs from %d sync journal files", count, len(paths))
        for path in paths:
            files.calls.unlink(path)
        files.calls.sync_directory(str(directory))
    except OSError as error:
        raise StorageFailed(f"cannot read the sync journal in {directory}: {error}") from error


def list_files(directory: str, files: OpenFiles) -> list[str]:
    """Lists the journal's files, oldest first."""
    names = files.calls.list_names(directory)
    ours = [name for name in names if name.startswith(FILE_PREFIX) and name.endswith(FILE_SUFFIX)]
    return [f"{directory}/{name}" for name in sorted(ours)]


def read_files(paths: Sequence[str], files: OpenFiles) -> dict[GroupId, JournaledLog]:
    """Reads journal files, given oldest first. Raises OSError and CorruptMessage."""
    logs: dict[GroupId, JournaledLog] = {}
    for path in paths:
        file = OpenFile(path)
        data = files.pread(file, files.size_bytes(file), 0)
        files.forget(file)
        try:
            replay(logs, memoryview(data))
        except CorruptMessage as error:
            reason, position = error.args
            raise CorruptMessage(f"{path} is damaged at position {position}: {reason}") from None
    return logs


def _recover_log(
    data_path: str, found: JournaledLog, files: OpenFiles, start_offset: Offset
) -> bool:
    """Returns whether the log lacked something."""
    if not found.batches:
        return False
    log = Log.open(f"{data_path}/{found.path}", LogConfig(), files, clean=False)
    try:
        truncate_at_gap(log, start_offset)
        is_lacking = restore_log(log, found, start_offset)
        # Synced even if nothing was missing: the log's content may be only in the page cache.
        log.sync()
    finally:
        log.close(clean=False)
    return is_lacking


def truncate_at_gap(log: Log, start_offset: Offset) -> None:
    """Truncates the log at its first gap: a segment can survive a crash while the end of the one
    before it is lost. The journal holds the lost part.

    Gaps before `start_offset` were made by the log cleaner; no entries are there any more, and
    everything there is durable (`EntryLog.fold_before`).
    """
    end_offset = max(log.synced_offset, log.log_start_offset, start_offset)
    for header in log.headers_from(end_offset):
        # The first batch may begin before `end_offset`: a log can start within a batch.
        if header.base_offset > end_offset:
            _log.warning("%s has a gap at offset %d: truncated there", log.directory, end_offset)
            log.truncate_to(end_offset)
            return
        end_offset = header.next_offset


def restore_log(log: Log, found: JournaledLog, start_offset: Offset) -> bool:
    """Appends the batches that the log lacks, without making them durable. Returns whether there
    were any."""
    before = log.log_end_offset
    all_batches = found.batches
    for number, (segment_base_offset, data) in enumerate(all_batches):
        is_last = number + 1 == len(all_batches)
        if not is_last and all_batches[number + 1].base_offset <= log.log_end_offset:
            continue
        for position, header in iter_batches(data):
            if header.next_offset > log.log_end_offset:
                _check_follows(log, header, start_offset)
                batch = data[position : position + header.size_bytes]
                log.restore(batch, header, segment_base_offset)
    return log.log_end_offset > before


def _check_follows(log: Log, header: BatchHeader, start_offset: Offset) -> None:
    end_offset = log.log_end_offset
    if end_offset < header.base_offset == start_offset and log.size_bytes == 0:
        # The log was meant to begin there and had no files of its own yet.
        log.reset_to(header.base_offset)
    elif header.base_offset != end_offset:
        raise CorruptMessage(
            f"{log.directory} ends at offset {end_offset}, the sync journal continues at "
            f"{header.base_offset}"
        )
