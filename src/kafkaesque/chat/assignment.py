"""The partitions that the consumer group assigned to this back end: fencing, restore, release.

A partition is served only while both of its inputs (commands and hand-overs) are assigned to this
member. If only one of them is, that input is paused.

Taking a partition has three steps:
1. End the open transaction of a predecessor that was killed (`_fence_predecessors`).
2. Write this back end's transactional id to chat.owners.
3. Restore the state: the snapshot, then the journal from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from kafkaesque.chat.partition import HomePartition
from kafkaesque.chat.rules.facts import decode_entry
from kafkaesque.chat.rules.fold import fold_all
from kafkaesque.chat.rules.snapshot import SnapshotUnreadable, decode_snapshot
from kafkaesque.chat.rules.state import ChatPartitionState
from kafkaesque.client.ports import (
    CommitPoint,
    Log,
    LogReader,
    LogWriter,
    Record,
    Span,
    Subscription,
    WriterOptions,
)
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.chat import CHAT_JOURNAL, CHAT_OWNERS, CHAT_SNAPSHOT
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)


class AssignedPartitions:
    """A rebalance listener that keeps a HomePartition for every partition this back end serves.

    Released partitions stay in memory. If the group assigns one again and no other process has written to its
    journal meanwhile, it need not be restored.
    """

    def __init__(
        self, log: Log, writer: LogWriter, transactional_id: str, inputs: Collection[str]
    ) -> None:
        self._log = log
        self._writer = writer
        self._transactional_id = transactional_id
        self._inputs = tuple(inputs)
        self._reader: LogReader | None = None
        self.served: dict[PartitionIndex, HomePartition] = {}
        self._released: dict[PartitionIndex, HomePartition] = {}
        self.joined = asyncio.Event()
        """Set after the group's first assignment."""
        self.restored = 0
        self.restore_ms = 0
        self.fenced: list[str] = []
        """Transactional ids of killed predecessors whose transactions were ended here."""

    async def open_reader(self, group: str) -> LogReader:
        """Opens the reader that joins the group. Its `read` calls the methods below."""
        subscription = Subscription(self._inputs, group, listener=self)
        self._reader = await self._log.open_reader(subscription)
        return self._reader

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        reader = self._joined_reader()
        mine = reader.assignment() | places
        touched = {place.partition for place in places}
        complete = {
            partition
            for partition in touched
            if all(place in mine for place in self._input_partitions(partition))
        }
        await reader.pause(place for place in places if place.partition not in complete)
        if complete:
            started_s = time.monotonic()
            await self._take(complete)
            await reader.resume(
                place
                for partition in complete
                for place in self._input_partitions(partition)
                if place not in places
            )
            self.restore_ms = int((time.monotonic() - started_s) * 1000)
            logger.info("serving %s after %d ms", sorted(self.served), self.restore_ms)
        self.joined.set()

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        leaving = self._release(places)
        await _write_owner(self._writer, leaving, None)
        mine = self._joined_reader().assignment() - places
        await self._joined_reader().pause(place for place in mine if place.partition in leaving)

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        logger.warning("the consumer group expelled this back end")
        self._release(places)
        self._released.clear()

    async def _take(self, partitions: Collection[PartitionIndex]) -> None:
        self.fenced += await _fence_predecessors(self._log, partitions, self._transactional_id)
        await _write_owner(self._writer, partitions, self._transactional_id)
        points = await self._joined_reader().committed(
            place for partition in partitions for place in self._input_partitions(partition)
        )
        journal_ends = dict.fromkeys(partitions, Offset(0))
        for place, point in points.items():
            end = max(journal_ends[place.partition], journal_end(point))
            journal_ends[place.partition] = end
        missing = {}
        for partition, end in journal_ends.items():
            kept = self._released.pop(partition, None)
            if kept is not None and kept.journal_next == end:
                self.served[partition] = kept
            else:
                missing[partition] = end
        self.restored += len(missing)
        self.served |= await _restore(self._log, missing)

    def _release(self, places: frozenset[TopicPartition]) -> list[PartitionIndex]:
        leaving = sorted({place.partition for place in places} & self.served.keys())
        for partition in leaving:
            self._released[partition] = self.served.pop(partition)
        return leaving

    def _input_partitions(self, partition: PartitionIndex) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic in self._inputs]

    def _joined_reader(self) -> LogReader:
        if self._reader is None:
            raise InvariantBroken("the group assigned partitions before the reader was opened")
        return self._reader


# -- owners ------------------------------------------------------------------------------------------


async def _fence_predecessors(
    log: Log, partitions: Iterable[PartitionIndex], transactional_id: str
) -> list[str]:
    """Ends the transactions of owners that were killed, and returns their transactional ids.

    The open transaction of a killed writer blocks every read_committed reader of its partitions until
    it times out. chat.owners names the last owner of each partition. Opening a writer with the dead
    owner's transactional id makes the broker abort that transaction. An owner that stops in order
    removes its name first, so live back ends are not fenced; one that is fenced by mistake restarts
    its pass.
    """
    owners: dict[bytes, str] = {}
    spans = await log.admin.spans(CHAT_OWNERS.name)
    async for records in read_stretch(log, spans):
        for record in records:
            owners[record.key or b""] = (record.value or b"").decode(errors="replace")
    found = {owners.get(b"%d" % partition, "") for partition in partitions}
    found -= {"", transactional_id}
    for predecessor in sorted(found):
        logger.warning("ending the open transaction of transactional_id=%s", predecessor)
        # The writer sends nothing. librdkafka requires a delivery timeout below whatever
        # `transaction.timeout.ms` is configured.
        options = WriterOptions(transactional_id=predecessor, delivery_timeout_ms=1000)
        fencing_writer = await log.open_writer(options)
        await fencing_writer.close()
    return sorted(found)


async def _write_owner(
    writer: LogWriter, partitions: Iterable[PartitionIndex], transactional_id: str | None
) -> None:
    """Records the owner of `partitions`; None removes it."""
    value = None if transactional_id is None else transactional_id.encode()
    records = [Record(CHAT_OWNERS.name, b"%d" % partition, value) for partition in partitions]
    if records:
        async with writer.transaction():
            await writer.send(records)


# -- restore -----------------------------------------------------------------------------------------


def journal_metadata(journal_next: Offset) -> str:
    """Commit metadata that records how far the journal reached with the committed offset.

    Both were written by one transaction, but its commit marker may reach the journal's partition
    later. A successor must therefore read the journal to this offset, even if its end seems earlier.
    """
    return f"journal={journal_next}"


def journal_end(point: CommitPoint) -> Offset:
    """The journal offset in a commit's metadata; 0 if there is none."""
    name, _, number = point.metadata.partition("=")
    return Offset(int(number)) if name == "journal" and number.isdecimal() else Offset(0)


async def _restore(
    log: Log, journal_ends: Mapping[PartitionIndex, Offset]
) -> dict[PartitionIndex, HomePartition]:
    """Rebuilds partitions from snapshot and journal, at least up to `journal_ends`.

    Raises EntryUnreadable if a later build wrote the journal.
    """
    restored = await _read_snapshots(log, journal_ends.keys())
    spans = await log.admin.spans(CHAT_JOURNAL.name)
    to_read = {}
    for index, partition in restored.items():
        place = TopicPartition(CHAT_JOURNAL.name, index)
        to_read[place] = Span(partition.journal_next, max(spans[place].end, journal_ends[index]))
    async for records in read_stretch(log, to_read):
        for record in records:
            partition = restored[record.partition]
            facts = decode_entry(record.value or b"")
            fold_all(partition.state, facts)
            partition.facts_since_snapshot += len(facts)
            partition.journal_next = Offset(record.offset + 1)
    return restored


async def _read_snapshots(
    log: Log, partitions: Collection[PartitionIndex]
) -> dict[PartitionIndex, HomePartition]:
    spans = await log.admin.spans(CHAT_SNAPSHOT.name)
    to_read = {place: span for place, span in spans.items() if place.partition in partitions}
    found: dict[PartitionIndex, dict[bytes, bytes | None]] = defaultdict(dict)
    async for records in read_stretch(log, to_read):
        for record in records:
            found[record.partition][record.key or b""] = record.value
    restored = {}
    for partition in partitions:
        try:
            state, journal_next = decode_snapshot(found[partition].items())
        except SnapshotUnreadable as error:
            logger.warning("partition %d: reading the whole journal: %s", partition, error)
            state, journal_next = ChatPartitionState(), Offset(0)
        restored[partition] = HomePartition(partition, state, journal_next)
    return restored
