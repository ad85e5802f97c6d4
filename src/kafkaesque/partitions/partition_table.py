"""The partitions that live on this node: opened, found, kept in shape and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafkaesque.model.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from kafkaesque.model.ids import (
    LeaderEpoch,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig
from kafkaesque.partitions.partition import Environment, Partition, load_producers, log_config
from kafkaesque.storage.directory import DataDirectory
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles

logger = logging.getLogger(__name__)

PRODUCER_SNAPSHOT_RECORDS = 100_000
"""A producer snapshot is written when the log grew by this many records since the last one, so
that a start after a crash reads few headers."""

CLOSE_THREADS = 8
"""Closing a log that has unsynced records is a sync each; they share the disk's commits."""


class PartitionTable:
    """All partitions of the node, by topic name and by topic id.

    A topic's partitions are numbered from 0 without a gap, so each topic is a list.
    """

    __slots__ = ("_by_id", "_by_name", "_clean", "_data", "_env", "_files", "_leader_epoch")

    def __init__(
        self,
        data: DataDirectory,
        files: OpenFiles,
        env: Environment,
        leader_epoch: LeaderEpoch,
        *,
        clean: bool,
    ) -> None:
        self._data = data
        self._files = files
        self._env = env
        self._leader_epoch = leader_epoch
        self._clean = clean
        self._by_name: dict[str, list[Partition]] = {}
        self._by_id: dict[TopicId, list[Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in tuple(self._by_name.values()):
            yield from partitions

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._by_name.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return partitions[index]

    def get_by_id(self, topic_id: TopicId, index: int) -> Partition:
        partitions = self._by_id.get(topic_id)
        if partitions is None:
            raise UnknownTopicId("This server does not host this topic ID.")
        if not 0 <= index < len(partitions):
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return partitions[index]

    def of_topic(self, topic: str) -> Sequence[Partition]:
        return self._by_name.get(topic, ())

    # -- make actual match desired ----------------------------------------------------------------

    def open_blocking(
        self, name: str, topic_id: TopicId, count: int, config: TopicConfig, *, is_new: bool
    ) -> list[Partition]:
        """Open the partitions that `name` has beyond those already open. Any thread."""
        have = len(self._by_name.get(name, ()))
        return [
            self._open_one(name, topic_id, PartitionIndex(index), config, is_new=is_new)
            for index in range(have, count)
        ]

    def _open_one(
        self,
        name: str,
        topic_id: TopicId,
        index: PartitionIndex,
        config: TopicConfig,
        *,
        is_new: bool,
    ) -> Partition:
        directory = self._data.log_path(topic_id, index)
        log = Log.open(directory, log_config(config), self._files, clean=self._clean or is_new)
        return Partition(
            TopicPartition(name, index),
            topic_id,
            log,
            load_producers(log),
            config,
            self._leader_epoch,
            self._env,
        )

    def remove_leftovers(self, deleted: Collection[TopicId], alive: Collection[TopicId]) -> None:
        """Finish deletions that a crash cut short. What nobody deleted is never touched."""
        for topic_id in self._data.topic_ids():
            if topic_id in deleted:
                self._data.delete_topic(topic_id)
            elif topic_id not in alive:
                logger.warning("%s belongs to no known topic and is left alone", topic_id)

    def add(self, name: str, topic_id: TopicId, opened: Sequence[Partition]) -> None:
        """Serve `opened` from now on. Event loop only, as is all that follows."""
        partitions = self._by_name.setdefault(name, [])
        self._by_id[topic_id] = partitions
        partitions.extend(opened)

    async def open(self, name: str, topic_id: TopicId, count: int, config: TopicConfig) -> None:
        """Open new partitions without stopping the event loop."""
        opened = await asyncio.to_thread(
            self.open_blocking, name, topic_id, count, config, is_new=True
        )
        self.add(name, topic_id, opened)

    async def delete(self, topic_id: TopicId) -> str:
        """Stop serving a topic, then remove its files. Returns its name."""
        partitions = self._by_id.pop(topic_id)
        name = partitions[0].name.topic
        del self._by_name[name]
        for partition in partitions:
            partition.close()
        await asyncio.to_thread(_delete_logs, partitions)
        await asyncio.to_thread(self._data.delete_topic, topic_id)
        return name

    def set_config(self, name: str, config: TopicConfig) -> None:
        for partition in self._by_name.get(name, ()):
            partition.set_config(config)

    # -- keep in shape ------------------------------------------------------------------------

    async def maintain(self, producer_id_expiration_ms: int) -> None:
        """Drop what retention lets go, forget silent producers, save producer snapshots."""
        now_ms = self._env.clock.wall_ms()
        await asyncio.to_thread(_apply_retention, tuple(self), now_ms)
        for partition in self:
            partition.producers.expire(now_ms, producer_id_expiration_ms)
            grown = partition.log_end_offset - partition.producers.saved_offset
            if grown >= PRODUCER_SNAPSHOT_RECORDS and len(partition.producers):
                partition.save_producers()

    def flush_due(self) -> None:
        """Sync what `flush=never` left unsynced for long enough."""
        if not self._env.flush_always:
            for partition in self:
                partition.flush_if_due()

    def close_all(self) -> bool:
        """Sync and close every log. True if all of them are now clean. Blocking."""
        partitions = tuple(self)
        for partition in partitions:
            partition.close()
        with ThreadPoolExecutor(CLOSE_THREADS, thread_name_prefix="close") as executor:
            return all(executor.map(_close_cleanly, partitions))


def _close_cleanly(partition: Partition) -> bool:
    try:
        if len(partition.producers):
            partition.save_producers()
        partition.log.close(clean=True)
    except KafkaError as error:
        logger.error("%s was not closed cleanly: %s", partition.name, error)
        return False
    return True


def _apply_retention(partitions: Sequence[Partition], now_ms: TimestampMs) -> None:
    for partition in partitions:
        if partition.closed:
            continue
        try:
            gone = partition.log.apply_retention(now_ms, committed_offset=partition.high_watermark)
        except KafkaError as error:
            logger.error("retention of %s is tried again later: %s", partition.name, error)
            continue
        if gone.segments:
            logger.info(
                "retention deleted %d segment(s), %d bytes of %s",
                gone.segments,
                gone.size_bytes,
                partition.name,
            )


def _delete_logs(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.log.delete()
