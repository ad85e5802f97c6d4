"""The partitions on this node: opens, finds, maintains and closes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkaesque.broker.partitions.environment import Environment
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.producer_state import load_producers
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.opening import first_start, new_replica, sync_found
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG
from kafkaesque.broker.replication.staging import finish
from kafkaesque.broker.storage.config import log_config
from kafkaesque.broker.storage.directory import DataDirectory
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import (
    KafkaError,
    NotLeaderOrFollower,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkaesque.model.ids import (
    GroupId,
    MemberId,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig

logger = logging.getLogger(__name__)

PRODUCER_SNAPSHOT_RECORDS = 100_000
"""A producer snapshot is written when the log has grown by this many records since the last one, so
that a start after a crash reads few headers."""

CLOSE_THREADS = 8
"""Closing a log with unsynced records needs a sync; parallel syncs share the disk's commits."""

REOPEN_SECONDS = 1.0
"""How long to wait before a partition is reopened after a disk error."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A partition that is assigned to this node."""

    index: PartitionIndex
    group: GroupId
    first_members: tuple[MemberId, ...]
    """The first members of the group, the preferred leader first. Empty for a replica that joins an
    existing group; it gets the members from the leader."""


@dataclass(slots=True)
class HostedTopic:
    """This node's part of a topic. `partition_count` is that of the whole cluster."""

    name: str
    topic_id: TopicId
    partition_count: int
    config: TopicConfig
    partitions: dict[PartitionIndex, Partition] = field(default_factory=dict)
    refused: dict[PartitionIndex, KafkaError] = field(default_factory=dict)
    """Partitions of this node whose files could not be opened, and why. The files are left
    untouched: they may hold the only copy."""


class _Opened(NamedTuple):
    """A partition that a worker thread opened from disk."""

    placement: Placement
    entries: EntryLog
    producers: ProducerTable


class PartitionTable:
    """All topics of the cluster, by name and by id, with the partitions that are on this node."""

    __slots__ = ("_by_id", "_by_name", "_clean", "_data", "_env", "_files", "_reopening")

    def __init__(
        self, data: DataDirectory, files: OpenFiles, env: Environment[Partition], *, clean: bool
    ) -> None:
        self._data = data
        self._files = files
        self._env = env
        self._clean = clean
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[TopicId, HostedTopic] = {}
        self._reopening: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Partition]:
        for topic in tuple(self._by_name.values()):
            yield from tuple(topic.partitions.values())

    def __len__(self) -> int:
        return sum(len(topic.partitions) for topic in self._by_name.values())

    def get(self, topic: str, index: int, *, is_certain: bool = True) -> Partition:
        """Returns the partition if this node leads it; otherwise raises the error that redirects
        the client.

        `is_certain` requires that no other leader can have been elected since. Requests that wait
        for a majority do not need this: the majority decides, and a leader that is merely busy need
        not reject them.
        """
        hosted = self._by_name.get(topic)
        if hosted is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return _leading(hosted, index, is_certain)

    def get_by_id(self, topic_id: TopicId, index: int, *, is_certain: bool = True) -> Partition:
        """As `get`."""
        hosted = self._by_id.get(topic_id)
        if hosted is None:
            raise UnknownTopicId("This server does not host this topic ID.")
        return _leading(hosted, index, is_certain)

    def find(self, topic: str, index: int) -> Partition | None:
        """Returns this node's replica, whichever node leads."""
        hosted = self._by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(PartitionIndex(index))

    def of_topic(self, topic: str) -> Collection[Partition]:
        """Returns this node's replicas of a topic."""
        hosted = self._by_name.get(topic)
        return () if hosted is None else tuple(hosted.partitions.values())

    def partition_count(self, topic: str) -> int:
        """Returns the partition count in the whole cluster; 0 if the topic does not exist."""
        hosted = self._by_name.get(topic)
        return 0 if hosted is None else hosted.partition_count

    # -- apply the cluster's metadata ------------------------------------------------------------

    def know(self, name: str, topic_id: TopicId, partition_count: int, config: TopicConfig) -> None:
        """Adds or updates a topic of the cluster. `open` adds its partitions on this node."""
        hosted = self._by_id.get(topic_id)
        if hosted is None:
            hosted = HostedTopic(name, topic_id, partition_count, config)
            self._by_name[name] = self._by_id[topic_id] = hosted
        hosted.partition_count = partition_count

    def topic_ids(self) -> Collection[TopicId]:
        return tuple(self._by_id)

    def hosted(self, topic_id: TopicId) -> Collection[PartitionIndex]:
        hosted = self._by_id.get(topic_id)
        return () if hosted is None else tuple(hosted.partitions)

    async def open(self, topic_id: TopicId, placements: Sequence[Placement]) -> None:
        """Opens partitions without blocking the event loop. Open ones are kept."""
        hosted = self._by_id[topic_id]
        missing = [
            place
            for place in placements
            if place.index not in hosted.partitions and place.index not in hosted.refused
        ]
        new = {place.group for place in missing if self._create(place)}
        opened = await asyncio.to_thread(self._open_blocking, hosted, missing, new)
        for found in opened:
            self._serve(hosted, found, is_new=found.placement.group in new)

    def _create(self, place: Placement) -> bool:
        """Creates the group in the journal if it is new on this node. Returns whether it was."""
        journal = self._env.replicas.raft_journal
        if journal.facts(place.group) is not None:
            return False
        journal.create(place.group, first_start(place.first_members))
        return True

    def _open_blocking(
        self, hosted: HostedTopic, placements: Iterable[Placement], new: Collection[GroupId]
    ) -> list[_Opened]:
        opened = []
        for place in placements:
            try:
                is_clean = self._clean or place.group in new
                opened.append(self._open_one(hosted, place, is_clean=is_clean))
            except KafkaError as error:
                # One damaged partition must not stop the rest of the node.
                logger.error("cannot open %s-%d: %s", hosted.name, place.index, error)
                hosted.refused[place.index] = error
        return opened

    def _open_one(self, hosted: HostedTopic, place: Placement, *, is_clean: bool) -> _Opened:
        directory = self._data.log_path(hosted.topic_id, place.index)
        journal = self._env.replicas.raft_journal
        facts = journal.facts(place.group)
        if facts is not None and facts.is_resetting and self._env.replicas.sync_journal:
            # An earlier attempt to replace the log failed: nothing of the old log may reappear in
            # the new one.
            self._env.replicas.sync_journal.void(place.group)
        finish(str(directory), facts, self._files.calls)
        log = Log.open(directory, log_config(hosted.config), self._files, clean=is_clean)
        self._env.replicas.attach(place.group, log)
        entries = EntryLog.open(place.group, log, journal, is_clean=is_clean)
        sync_found(entries, journal)
        return _Opened(place, entries, load_producers(entries))

    def _serve(self, hosted: HostedTopic, found: _Opened, *, is_new: bool) -> Partition:
        """Starts the replica."""
        place, entries, producers = found
        env = self._env
        restart = entries.restart()
        name = TopicPartition(hosted.name, place.index)
        high_watermark = entries.end_offset_of(max(restart.commit_index, restart.applied_index))
        flush_messages = env.flush_messages(hosted.config)
        partition = Partition(
            name,
            hosted.topic_id,
            producers,
            hosted.config,
            high_watermark,
            env,
            lambda machine: new_replica(
                place.group,
                entries,
                env.replicas,
                machine,
                RAFT_CONFIG,
                flush_messages=flush_messages,
            ),
        )
        replica = partition.replica
        hosted.partitions[place.index] = partition
        env.replicas.add(replica)
        is_preferred = is_new and place.first_members[:1] == (env.replicas.member,)
        if is_preferred or replica.membership.voters == (env.replicas.member,):
            replica.campaign()
        return partition

    async def close_partition(self, topic_id: TopicId, index: PartitionIndex) -> None:
        """Removes a replica and its files: this node is no longer a member of the group."""
        hosted = self._by_id[topic_id]
        partition = hosted.partitions.pop(index)
        partition.close(NotLeaderOrFollower(f"{partition.name} has moved to other nodes"))
        self._env.replicas.remove(partition.replica.group)
        self._env.replicas.raft_journal.forget(partition.replica.group)
        await asyncio.to_thread(partition.log.delete)

    async def delete(self, topic_id: TopicId) -> str | None:
        """Stops serving a topic, then removes its files. Returns its name, if the topic exists
        here."""
        hosted = self._by_id.pop(topic_id, None)
        if hosted is None:
            return None
        del self._by_name[hosted.name]
        for partition in hosted.partitions.values():
            partition.close()
            self._env.replicas.remove(partition.replica.group)
            self._env.replicas.raft_journal.forget(partition.replica.group)
        await asyncio.to_thread(_delete_logs, tuple(hosted.partitions.values()))
        await asyncio.to_thread(self._data.delete_topic, topic_id)
        return hosted.name

    def remove_leftovers(self, deleted: Collection[TopicId], alive: Collection[TopicId]) -> None:
        """Completes deletions that a crash interrupted. Directories of unknown topics are never
        deleted."""
        for topic_id in self._data.topic_ids():
            if topic_id in deleted:
                self._data.delete_topic(topic_id)
            elif topic_id not in alive:
                logger.warning("kept the directory of unknown topic %s", topic_id)

    def set_config(self, topic_id: TopicId, config: TopicConfig) -> None:
        hosted = self._by_id[topic_id]
        hosted.config = config
        for partition in hosted.partitions.values():
            partition.set_config(config)

    # -- disk errors -----------------------------------------------------------------------------

    def reopen_later(self, partition: Partition) -> None:
        """Reopens a partition after a disk error, with retries. Only unacknowledged records may be
        lost."""
        task = self._env.loop.create_task(self._reopen(partition))
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)

    async def _reopen(self, partition: Partition) -> None:
        hosted = self._by_id.get(partition.topic_id)
        index, group = partition.name.partition, partition.replica.group
        self._env.replicas.remove(group)
        place = Placement(index, group, ())
        while hosted is not None and hosted.partitions.get(index) is partition:
            await asyncio.sleep(REOPEN_SECONDS)
            try:
                found = await asyncio.to_thread(self._reopen_blocking, hosted, partition, place)
            except KafkaError as error:
                logger.error("cannot reopen %s yet: %s", partition.name, error)
                continue
            if hosted.partitions.get(index) is partition:
                self._serve(hosted, found, is_new=False)
                logger.warning("reopened %s", partition.name)

    def _reopen_blocking(
        self, hosted: HostedTopic, partition: Partition, place: Placement
    ) -> _Opened:
        """Opens the partition again, keeping only what was synced. After a failed sync, the page
        cache may hold data that looks valid and will never reach the disk. The synced part is all
        that this replica ever acknowledged."""
        # The offset synced in the log's own files. What the sync journal has beyond it is restored
        # below.
        synced_offset, failure = partition.log.file_synced_offset, partition.log.failure
        partition.log.close(clean=False)
        if failure is not None:
            directory = self._data.log_path(hosted.topic_id, place.index)
            log = Log.open(directory, log_config(hosted.config), self._files, clean=False)
            log.truncate_to(max(synced_offset, log.log_start_offset))
            self._env.replicas.restore(place.group, log)
            log.close(clean=False)
        # Not clean, however the last stop was: the small files may lack acknowledged records.
        return self._open_one(hosted, place, is_clean=False)

    # -- maintenance --------------------------------------------------------------------------

    async def maintain(self, producer_id_expiration_ms: int) -> None:
        """Applies retention, forgets idle producers, and saves producer snapshots."""
        now_ms = self._env.clock.wall_ms()
        monotonic_ms = int(self._env.clock.monotonic() * 1000)
        for partition in self:
            if partition.closed is not None:
                continue
            try:
                await partition.expire(now_ms)
            except KafkaError as error:
                logger.error(
                    "retention of %s failed and will be retried: %s", partition.name, error
                )
            partition.producers.expire(monotonic_ms, producer_id_expiration_ms)
            grown = partition.log_end_offset - partition.producers.saved_offset
            if grown >= PRODUCER_SNAPSHOT_RECORDS and len(partition.producers):
                with suppress(StorageFailed):  # only a shortcut for the next start
                    partition.save_producers()

    def flush_due(self) -> None:
        """Syncs logs that `flush=never` has left unsynced for long enough."""
        if not self._env.flush_always:
            for partition in self:
                partition.flush_if_due()

    def stop(self) -> None:
        """Stops serving. Call it on the event loop; `close_all` then needs no event loop."""
        for task in self._reopening:
            task.cancel()
        for partition in self:
            partition.close(NotLeaderOrFollower("the broker is shutting down"))
            self._env.replicas.remove(partition.replica.group)

    def close_all(self) -> bool:
        """Syncs and closes every log. Returns True if all were closed cleanly. Blocking."""
        with ThreadPoolExecutor(CLOSE_THREADS, thread_name_prefix="close") as executor:
            return all(executor.map(_close_cleanly, tuple(self)))


def _leading(hosted: HostedTopic, index: int, is_certain: bool) -> Partition:
    # Not PartitionIndex(index): a NewType is a call, and this is on the path of every request.
    partition: Partition | None = hosted.partitions.get(index)  # type: ignore[call-overload]
    if partition is not None:
        if is_certain:
            partition.check_serves()
        else:
            partition.check_leads()
        return partition
    if index in hosted.refused:
        raise hosted.refused[PartitionIndex(index)]
    if 0 <= index < hosted.partition_count:
        raise NotLeaderOrFollower("This server does not lead this topic-partition.")
    raise UnknownTopicOrPartition("This server does not host this topic-partition.")


def _close_cleanly(partition: Partition) -> bool:
    try:
        if len(partition.producers):
            partition.save_producers()
        partition.replica.entries.close()
        partition.log.close(clean=True)
    except KafkaError as error:
        logger.error("%s was not closed cleanly: %s", partition.name, error)
        return False
    return partition.log.failure is None


def _delete_logs(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.log.delete()
