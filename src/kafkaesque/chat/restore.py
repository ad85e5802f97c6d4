"""The state of partitions as the log tells it: the snapshot, then the journal from there on.

How far the journal must be read stands beside the offsets that the last owner committed (`journal_mark`):
the same transaction wrote both, but its end may reach the partition of the journal a moment later.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping

from kafkaesque.chat.home import Home
from kafkaesque.chat.rules.facts import decode_entry
from kafkaesque.chat.rules.fold import fold_all
from kafkaesque.chat.rules.snapshot import SnapshotUnreadable, decode_snapshot
from kafkaesque.chat.rules.state import PartitionState
from kafkaesque.client.ports import CommitPoint, Log, Span
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.chat import CHAT_JOURNAL, CHAT_SNAPSHOT
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)


def journal_mark(journal_next: Offset) -> str:
    return f"journal={journal_next}"


def read_mark(point: CommitPoint) -> Offset:
    name, _, number = point.metadata.partition("=")
    return Offset(int(number)) if name == "journal" and number.isdecimal() else Offset(0)


async def restore(log: Log, marks: Mapping[PartitionIndex, Offset]) -> dict[PartitionIndex, Home]:
    """A home for each partition, at least as far as its mark. EntryUnreadable: a later build wrote."""
    homes = await _read_snapshots(log, marks.keys())
    spans = await log.admin.spans(CHAT_JOURNAL.name)
    stretch = {}
    for partition, home in homes.items():
        span = spans[TopicPartition(CHAT_JOURNAL.name, partition)]
        end = max(span.end, marks[partition])
        stretch[TopicPartition(CHAT_JOURNAL.name, partition)] = Span(home.journal_next, end)
    async for records in read_stretch(log, stretch):
        for record in records:
            home = homes[record.partition]
            facts = decode_entry(record.value or b"")
            fold_all(home.state, facts)
            home.facts_since_snapshot += len(facts)
            home.journal_next = Offset(record.offset + 1)
    return homes


async def _read_snapshots(
    log: Log, partitions: Collection[PartitionIndex]
) -> dict[PartitionIndex, Home]:
    spans = await log.admin.spans(CHAT_SNAPSHOT.name)
    stretch = {place: span for place, span in spans.items() if place.partition in partitions}
    found: dict[PartitionIndex, dict[bytes, bytes | None]] = defaultdict(dict)
    async for records in read_stretch(log, stretch):
        for record in records:
            found[record.partition][record.key or b""] = record.value
    homes = {}
    for partition in partitions:
        try:
            state, journal_next = decode_snapshot(found[partition].items())
        except SnapshotUnreadable as error:
            logger.warning("partition %d from the whole journal: %s", partition, error)
            state, journal_next = PartitionState(), Offset(0)
        homes[partition] = Home(partition, state, journal_next)
    return homes
