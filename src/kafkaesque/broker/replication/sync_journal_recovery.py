"""What a node does with the files of a sync journal that a crash left.

Before any log is opened for use: each log with something in them is opened as it is, gets what it lacks,
and is synced. Then the files are removed. A crash on the way changes nothing: what a log has already is
skipped the next time.

What a log has is always a beginning of what the journal tells with its cuts, since a cut is durable in
the file before anything is appended behind it. So a gap between the two is damage, as is a block that
was durable and cannot be read: then the node does not start, for it would deny what it acknowledged.
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
    """Bring the logs of this node's groups up to what was durable. Blocking.

    `starts` says where the entries of each begin (`RaftJournal.starts`). CorruptMessage names a damaged place; StorageFailed if the disk refuses.
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
        _log.info("%d logs were completed from %d files of the sync journal", count, len(paths))
        for path in paths:
            files.calls.unlink(path)
        files.calls.sync_directory(str(directory))
    except OSError as error:
        raise StorageFailed(f"cannot read the sync journal in {directory}: {error}") from error


def list_files(directory: str, files: OpenFiles) -> list[str]:
    """Oldest first."""
    names = files.calls.list_names(directory)
    ours = [name for name in names if name.startswith(FILE_PREFIX) and name.endswith(FILE_SUFFIX)]
    return [f"{directory}/{name}" for name in sorted(ours)]


def read_files(paths: Sequence[str], files: OpenFiles) -> dict[GroupId, JournaledLog]:
    """What stands in them, the oldest first. Raises OSError and CorruptMessage."""
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
    """Whether the log lacked something."""
    if not found.batches:
        return False
    log = Log.open(f"{data_path}/{found.path}", LogConfig(), files, clean=False)
    try:
        cut_behind_gap(log, start_offset)
        is_lacking = restore_log(log, found, start_offset)
        # Also if it lacks nothing: what it has may be in the page cache only.
        log.sync()
    finally:
        log.close(clean=False)
    return is_lacking


def cut_behind_gap(log: Log, start_offset: Offset) -> None:
    """A segment may have outlived the end of the one before it: what was in between is in the journal.

    Gaps before `start_offset`, where no entries are any more, a cleaner made; all that lies there is
    durable (`EntryLog.fold_before`).
    """
    end_offset = max(log.synced_offset, log.log_start_offset, start_offset)
    for header in log.headers_from(end_offset):
        # The first may begin before: a log can start within a batch.
        if header.base_offset > end_offset:
            _log.warning("%s has a gap at offset %d: cut there", log.directory, end_offset)
            log.truncate_to(end_offset)
            return
        end_offset = header.next_offset


def restore_log(log: Log, found: JournaledLog, start_offset: Offset) -> bool:
    """Append what the log lacks, and say whether that was anything. It is not durable then."""
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
        # It was to begin there, and had no files of its own yet.
        log.reset_to(header.base_offset)
    elif header.base_offset != end_offset:
        raise CorruptMessage(
            f"{log.directory} ends at offset {end_offset}, the sync journal goes on at "
            f"{header.base_offset}"
        )
