"""Records leave a log at its start, and what they told of their producers stays. Blocking.

A producer's last batches, its epoch and the coordinator that it heard last are known by records. Once
those are deleted (retention, DeleteRecords) a restart would take the producer for a new one: a retry
would be appended twice, and a marker that comes late would be believed. As in Kafka, whose snapshots
outlive their segments, the state at the new start is therefore saved first. It stands before what is
not committed, so whatever a crash takes from the end of the log, it can be used; and it is used only
if the crash did not come before the deletion.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from kafkaesque.broker.partitions.loading import read_producers
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.model.errors import KafkaError, StorageFailed
from kafkaesque.model.ids import Offset

logger = logging.getLogger(__name__)


def let_go(
    entries: EntryLog, journal: RaftJournal, offset: Offset, producers: ProducerTable | None
) -> None:
    """Delete what lies before `offset`, which the entries do without already. `producers` is what
    `ProducerTable.before` tells; None if it has to be read."""
    # What the journal does not know to be dropped must not be missing.
    journal.sync()
    if producers is None:
        with suppress(KafkaError):
            producers = read_producers(entries).before(offset)
    if producers is not None and (len(producers) or len(producers.transactions)):
        try:
            entries.log.save_snapshot(offset, producers.snapshot(is_of_start=True))
        except StorageFailed as error:
            # A full disk needs the room more.
            logger.warning("producers are forgotten with their records: %s", error)
    entries.log.delete_before(offset)
