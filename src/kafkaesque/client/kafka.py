"""`KafkaLog`: a Log over librdkafka, and its admin client."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.client.kafka_errors import LEADERLESS, error_of, translate
from kafkaesque.client.kafka_reader import KafkaReader
from kafkaesque.client.kafka_writer import KafkaWriter
from kafkaesque.client.ports import (
    Assignment,
    LogAdmin,
    LogReader,
    LogWriter,
    Span,
    Subscription,
    TopicUnknown,
    WriterOptions,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId, TopicPartition

REQUEST_SECONDS_MAX = 15.0
POLL_SECONDS = 0.1
DEFAULT_REPLICATION = -1
"""The broker's own default (`default.replication.factor`)."""

logger = logging.getLogger(__name__)


class _LibraryLog:
    """Sends librdkafka's log output to our debug level. librdkafka logs expected refusals as fatal; errors
    reach the caller as LogError anyway."""

    def log(self, _level: int, text: str, *arguments: object, **_: object) -> None:
        logger.debug(text, *arguments)


def _note(error: KafkaError) -> None:
    """Logs background errors. With this callback `poll` never raises; `send` reports failures."""
    logger.debug("%s", error)


class KafkaLog:
    """The Kafka at `bootstrap_servers`; `properties` are librdkafka's (security and the like)."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, Any] | None = None,
        *,
        client_id: str = "kafkaesque",
    ) -> None:
        self._config = {
            "client.id": client_id,
            "logger": _LibraryLog(),
            "error_cb": _note,
            **(properties or {}),
            "bootstrap.servers": bootstrap_servers,
        }
        self._admin: KafkaAdmin | None = None

    @property
    def admin(self) -> LogAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin(self._config)
        return self._admin

    async def open_writer(self, options: WriterOptions = WriterOptions()) -> LogWriter:  # noqa: B008
        return await KafkaWriter.start(self._config, options)

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        return await KafkaReader.start(self._config, what)

    async def close(self) -> None:
        """Does not close writers and readers: their callers do."""
        self._admin = None


class KafkaAdmin:
    """LogAdmin over librdkafka's AdminClient."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        try:
            self._client = AdminClient(dict(config))
        except KafkaException as exception:
            raise translate(error_of(exception), "make an admin client") from None

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        wanted = [
            NewTopic(spec.name, spec.partitions, DEFAULT_REPLICATION, config=dict(spec.configs))
            for spec in topics
        ]
        if not wanted:
            return []
        futures = self._client.create_topics(wanted, request_timeout=REQUEST_SECONDS_MAX)
        created = []
        for name, future in futures.items():
            try:
                await asyncio.wrap_future(future)
                created.append(name)
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(error, f"create topic {name}") from None
        await self._wait_until_known(created)
        return created

    async def _wait_until_known(self, created: Sequence[str]) -> None:
        """Waits until the brokers have the topics. In Apache Kafka they receive them after the controller
        has answered."""
        deadline_s = time.monotonic() + REQUEST_SECONDS_MAX
        while created:
            try:
                await self._describe(created)
                return
            except TopicUnknown:
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(POLL_SECONDS)

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        return await asyncio.to_thread(self._spans, topic)

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        described = await self._describe(names)
        return {name: _topic_id(topic.topic_id) for name, topic in described.items()}

    async def partition_count(self, topic: str) -> int:
        return len((await self._describe([topic]))[topic].partitions)

    async def _describe(self, names: Iterable[str]) -> Mapping[str, Any]:
        wanted = TopicCollection(list(names))
        try:
            futures = self._client.describe_topics(wanted, request_timeout=REQUEST_SECONDS_MAX)
            return {name: await asyncio.wrap_future(future) for name, future in futures.items()}
        except KafkaException as exception:
            raise translate(error_of(exception), "describe topics") from None

    def _spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        """Uses a consumer rather than the admin client's ListOffsets: its end offset is the last stable
        offset, where a reader of committed records stops."""
        consumer = Consumer(
            {
                **self._config,
                "group.id": "kafkaesque-assigned",
                "isolation.level": "read_committed",
            }
        )
        try:
            metadata = consumer.list_topics(topic, REQUEST_SECONDS_MAX).topics[topic]
            if metadata.error is not None:
                raise translate(metadata.error, f"look at topic {topic}")
            spans = {}
            for number in sorted(metadata.partitions):
                start, end = _watermarks(consumer, KafkaTopicPartition(topic, number))
                place = TopicPartition(topic, PartitionIndex(number))
                spans[place] = Span(Offset(start), Offset(end))
            if not spans:
                raise TopicUnknown(f"there is no topic {topic}")
            return spans
        except KafkaException as exception:
            raise translate(error_of(exception), f"look at topic {topic}") from None
        finally:
            consumer.close()


def _watermarks(consumer: Consumer, place: KafkaTopicPartition) -> tuple[int, int]:
    """Start and end of a partition. Retries while its leader changes or has not created it yet, which
    librdkafka does not do here. Blocking; raises KafkaException."""
    deadline_s = time.monotonic() + REQUEST_SECONDS_MAX
    while True:
        try:
            return consumer.get_watermark_offsets(place, REQUEST_SECONDS_MAX)
        except KafkaException as exception:
            if error_of(exception).code() not in LEADERLESS or time.monotonic() > deadline_s:
                raise
        time.sleep(POLL_SECONDS)


def _topic_id(found: Any) -> TopicId:
    """From librdkafka's Uuid, whose type stub lacks the two halves."""
    mask = 2**64 - 1
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    return TopicId(UUID(int=(high & mask) << 64 | low & mask))
