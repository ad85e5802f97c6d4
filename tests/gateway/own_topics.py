"""A view of a Kafka for one test: topics, groups and transactional ids get a prefix of their own.

So stories that all use `gw.inbox` and `alice` can share one broker, one after another or at once, and each
starts with an empty log. Services do not notice the prefix.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    LogAdmin,
    LogReader,
    LogWriter,
    Rebalance,
    Received,
    Record,
    Span,
    Subscription,
    WriterOptions,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import Offset, TopicId, TopicPartition

T = TypeVar("T")
SECONDS_MAX = 30.0


class Names:
    """Translates names to the broker's and back."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def out(self, name: str) -> str:
        return self.prefix + name

    def back(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def place_out(self, place: TopicPartition) -> TopicPartition:
        return TopicPartition(self.out(place.topic), place.partition)

    def place_back(self, place: TopicPartition) -> TopicPartition:
        return TopicPartition(self.back(place.topic), place.partition)

    def all_out(self, by_place: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        return {self.place_out(place): value for place, value in by_place.items()}

    def all_back(self, by_place: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        return {self.place_back(place): value for place, value in by_place.items()}


class OwnTopics:
    """Implements Log."""

    def __init__(
        self, bootstrap: str, prefix: str, properties: Mapping[str, Any] | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._log = KafkaLog(bootstrap, properties)
        self._names = Names(prefix)

    @property
    def admin(self) -> LogAdmin:
        return _Admin(self._log.admin, self._names)

    async def open_writer(self, options: WriterOptions = WriterOptions()) -> LogWriter:  # noqa: B008
        if options.transactional_id is not None:
            own = self._names.out(options.transactional_id)
            options = dataclasses.replace(options, transactional_id=own)
        return _Writer(await self._log.open_writer(options), self._names)

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        names = self._names
        if isinstance(what, Assignment):
            what = dataclasses.replace(what, offsets=names.all_out(what.offsets))
        else:
            heard = None if what.listener is None else _Listener(what.listener, names)
            topics = [names.out(topic) for topic in what.topics]
            what = Subscription(topics, names.out(what.group), what.start, heard)
        return _Reader(await self._log.open_reader(what), names)

    async def close(self) -> None:
        await self._log.close()

    async def trim(self, place: TopicPartition, start: Offset) -> None:
        """Deletes the records before `start`, as retention does."""
        own = self._names.place_out(place)
        asked = KafkaTopicPartition(own.topic, own.partition, start)
        client = self._client()
        for future in client.delete_records([asked]).values():
            await asyncio.wrap_future(future)

    async def remove(self) -> None:
        """Deletes all topics of the prefix, so that a shared broker does not fill up."""
        assert self._names.prefix, "the topics of others stay"
        client = self._client()
        known = await asyncio.to_thread(client.list_topics, timeout=SECONDS_MAX)
        own = [name for name in known.topics if name.startswith(self._names.prefix)]
        if own:
            for future in client.delete_topics(own, operation_timeout=SECONDS_MAX).values():
                await asyncio.wrap_future(future)

    def _client(self) -> AdminClient:
        """The client must be kept until its futures are done."""
        return AdminClient({"bootstrap.servers": self._bootstrap})


class _Admin:
    def __init__(self, admin: LogAdmin, names: Names) -> None:
        self._admin = admin
        self._names = names

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        own = [dataclasses.replace(spec, name=self._names.out(spec.name)) for spec in topics]
        return [self._names.back(name) for name in await self._admin.ensure_topics(own)]

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        return self._names.all_back(await self._admin.spans(self._names.out(topic)))

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        found = await self._admin.topic_ids(self._names.out(name) for name in names)
        return {self._names.back(name): topic_id for name, topic_id in found.items()}

    async def partition_count(self, topic: str) -> int:
        return await self._admin.partition_count(self._names.out(topic))


class _Listener:
    def __init__(self, listener: Rebalance, names: Names) -> None:
        self._listener = listener
        self._names = names

    def _back(self, places: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(self._names.place_back(place) for place in places)

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        await self._listener.assigned(self._back(places))

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        await self._listener.revoked(self._back(places))

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        await self._listener.lost(self._back(places))


class _Reader:
    def __init__(self, reader: LogReader, names: Names) -> None:
        self.reader = reader
        self._names = names

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        found = await self.reader.read(count_max, wait_s)
        return [dataclasses.replace(one, topic=self._names.back(one.topic)) for one in found]

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        return self._names.all_back(await self.reader.positions())

    async def commit(self, points: Mapping[TopicPartition, CommitPoint] | None = None) -> None:
        await self.reader.commit(None if points is None else self._names.all_out(points))

    async def committed(
        self, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommitPoint]:
        return self._names.all_back(await self.reader.committed(self._out(places)))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._names.place_back(place) for place in self.reader.assignment())

    async def seek(self, place: TopicPartition, offset: Offset) -> None:
        await self.reader.seek(self._names.place_out(place), offset)

    async def pause(self, places: Iterable[TopicPartition]) -> None:
        await self.reader.pause(self._out(places))

    async def resume(self, places: Iterable[TopicPartition]) -> None:
        await self.reader.resume(self._out(places))

    async def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        await self.reader.add(self._names.all_out(offsets))

    async def drop(self, places: Iterable[TopicPartition]) -> None:
        await self.reader.drop(self._out(places))

    async def close(self) -> None:
        await self.reader.close()

    def _out(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [self._names.place_out(place) for place in places]


class _Writer:
    def __init__(self, writer: LogWriter, names: Names) -> None:
        self._writer = writer
        self._names = names

    @property
    def transactional(self) -> bool:
        return self._writer.transactional

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        return await self._writer.send(
            dataclasses.replace(record, topic=self._names.out(record.topic)) for record in records
        )

    def transaction(self) -> AbstractAsyncContextManager[None]:
        return self._writer.transaction()

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        assert isinstance(reader, _Reader)
        own = None if points is None else self._names.all_out(points)
        await self._writer.send_offsets(reader.reader, own)

    async def close(self) -> None:
        await self._writer.close()
