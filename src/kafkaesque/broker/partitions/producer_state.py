"""Producer state of a log on disk: loading it, and keeping it when records are deleted. Blocking.

A producer's last batches, its epoch and its last coordinator epoch are read from its records. Once
those are deleted (retention, DeleteRecords), a restart would take the producer for a new one: a
retry would be appended twice, and a late marker would be accepted. So `trim_log` saves the state at
the new start of the log first, as in Kafka, whose snapshots outlive their segments. That snapshot
precedes everything uncommitted, so it is usable whatever a crash takes from the end of the log; and
it is used only if the crash did not come before the deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from kafkaesque.broker.partitions.rules.markers import Marker, decode_marker
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage, KafkaError, StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader, read_header

logger = logging.getLogger(__name__)

_STEP_BYTES: Final = 1024 * 1024


def load_producers(entries: EntryLog) -> ProducerTable:
    """The producers of a log, from its newest snapshot and the headers after it. Blocking.

    A damaged header is skipped, so that it does not keep the node from starting. A producer that wrote
    nothing after it is taken as new, and so are its retries.
    """
    table = _saved_producers(entries.log)
    damaged_offset = _take_headers(table, entries)
    if damaged_offset is not None:
        for batch in _sound_batches(entries, damaged_offset):
            header = read_header(batch)
            table.apply(header, decode_marker(batch) if header.is_control else None)
    return table


def read_producers(entries: EntryLog) -> ProducerTable:
    """As `load_producers`, on a log that may be written to. Raises CorruptMessage at damage."""
    table = _saved_producers(entries.log)
    damaged_offset = _take_headers(table, entries)
    if damaged_offset is not None:
        raise CorruptMessage(f"{entries.log.directory} is damaged at offset {damaged_offset}")
    return table


def _saved_producers(log: Log) -> ProducerTable:
    """The producers of the newest snapshot. It is a shortcut: without it, the headers give the same,
    except for deleted records."""
    limit = log.log_end_offset
    while (saved := log.latest_snapshot(limit)) is not None:
        with suppress(msgspec.DecodeError):
            table = ProducerTable.restore(saved[1], saved[0], log.log_start_offset)
            if table is not None:
                return table
        limit = Offset(saved[0] - 1)
    return ProducerTable(log.log_start_offset)


def _take_headers(table: ProducerTable, entries: EntryLog) -> Offset | None:
    """Fold the headers into `table`. Returns the offset of the first damaged one, if any.

    No checksum covers the offset of a batch, so it is compared with the expected one.
    """
    log, whole_from, end_offset = entries.log, entries.folded_offset, entries.log.log_end_offset
    start = offset = max(table.saved_offset, log.log_start_offset)
    try:
        for header in log.headers_from(start):
            is_begun = header.base_offset < offset == start  # a log may start within a batch
            if header.base_offset != offset >= whole_from and not is_begun:
                break
            table.apply(header, read_marker(log, header) if header.is_control else None)
            offset = header.next_offset
    except CorruptMessage as error:
        logger.error("%s", error)
        return offset
    if not whole_from <= offset < end_offset:
        return None
    logger.error("%s has no sound header at offset %d", log.directory, offset)
    return offset


def _sound_batches(entries: EntryLog, offset: Offset) -> Iterator[bytes | bytearray | memoryview]:
    """The undamaged batches from the one with `offset` on."""
    try:
        index = entries.index_at(max(offset, entries.folded_offset))
        while index <= entries.last_index:
            for entry in entries.entries_between(index, entries.last_index, _STEP_BYTES):
                index = LogIndex(entry.index + 1)
                with suppress(CorruptMessage):
                    yield from (blob for blob in entries.load([entry]) if blob is not None)
    except KafkaError as error:
        logger.error("producer state is incomplete: %s", error)


def read_marker(log: Log, header: BatchHeader) -> Marker | None:
    """The marker in a control batch of `log`; its header does not contain it."""
    limit_offset = header.next_offset
    batch = log.read(header.base_offset, header.size_bytes, limit_offset=limit_offset).records
    return decode_marker(batch) if batch else None


def trim_log(
    entries: EntryLog, journal: RaftJournal, offset: Offset, producers: ProducerTable | None
) -> None:
    """Delete the batches before `offset`, which the entry log has dropped already. `producers` is the
    result of `ProducerTable.before`, or None if it must be read."""
    # A batch that the journal does not record as dropped must not be missing.
    journal.sync()
    if producers is None:
        with suppress(KafkaError):
            producers = read_producers(entries).before(offset)
    if producers is not None and (len(producers) or len(producers.transactions)):
        try:
            entries.log.save_snapshot(offset, producers.snapshot(is_of_start=True))
        except StorageFailed as error:
            # On a full disk, freeing space matters more.
            logger.warning("producers are forgotten with their records: %s", error)
    entries.log.delete_before(offset)
