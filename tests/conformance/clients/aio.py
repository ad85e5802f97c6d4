"""aiokafka: the asyncio client. Its event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from tests.conformance.clients.kafka_python import failure
from tests.conformance.clients.model import Client, Consumer, ConsumerOptions, Message, Received

T = TypeVar("T")

_STRATEGIES = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}
CALL_TIMEOUT_S = 60


class LoopThread:
    """An event loop that outlives single calls, as aiokafka's background tasks need."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_TIMEOUT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AioConsumer(Consumer):
    def __init__(self, thread: LoopThread, consumer: Any) -> None:
        self._thread = thread
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._thread.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_received(record) for records in polled.values() for record in records]

    def assignment(self) -> set[tuple[str, int]]:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._thread.run(self._consumer.commit())
        except KafkaError as error:
            raise failure(error) from error

    def seek(self, topic: str, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(aiokafka.TopicPartition(topic, partition), offset)

        self._thread.run(seek())

    def position(self, topic: str, partition: int) -> int:
        tp = aiokafka.TopicPartition(topic, partition)
        return int(self._thread.run(self._consumer.position(tp)))

    def close(self) -> None:
        self._thread.run(self._consumer.stop())


class AioKafka(Client):
    name: ClassVar[str] = "aiokafka"
    lacks: ClassVar[frozenset[str]] = frozenset({"cooperative-sticky"})

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._thread = LoopThread()

    def close(self) -> None:
        self._thread.close()

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        bootstrap: str | None = None,
        batch_bytes: int | None = None,
    ) -> list[int]:
        async def produce() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap or self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                max_request_size=5_000_000,
                max_batch_size=batch_bytes or 16384,
                linger_ms=5,
                retry_backoff_ms=20,
            )
            await producer.start()
            try:
                pending = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                answers = await asyncio.gather(*pending)
            finally:
                await producer.stop()
            return [-1 if answer is None else int(answer.offset) for answer in answers]

        try:
            return self._thread.run(produce())
        except KafkaError as error:
            raise failure(error) from error

    def subscribe(self, topics: Sequence[str], options: ConsumerOptions) -> Consumer:
        async def subscribe() -> Any:
            consumer = self._consumer(options)
            consumer.subscribe(list(topics))
            await consumer.start()
            return consumer

        return AioConsumer(self._thread, self._thread.run(subscribe()))

    def assign(self, partitions: Sequence[tuple[str, int]], options: ConsumerOptions) -> Consumer:
        async def assign() -> Any:
            consumer = self._consumer(options)
            await consumer.start()
            consumer.assign([aiokafka.TopicPartition(topic, index) for topic, index in partitions])
            return consumer

        return AioConsumer(self._thread, self._thread.run(assign()))

    def _consumer(self, options: ConsumerOptions) -> Any:
        extra: dict[str, Any] = {}
        if options.max_partition_fetch_bytes is not None:
            extra["max_partition_fetch_bytes"] = options.max_partition_fetch_bytes
        if options.fetch_min_bytes is not None:
            extra["fetch_min_bytes"] = options.fetch_min_bytes
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance_id,
            auto_offset_reset=options.reset,
            enable_auto_commit=False,
            partition_assignment_strategy=[_STRATEGIES[options.strategy]],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=min(500, options.session_timeout_ms // 4),
            fetch_max_wait_ms=options.fetch_max_wait_ms,
            metadata_max_age_ms=1000,
            **extra,
        )

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = aiokafka.TopicPartition(topic, partition)

        async def lookup() -> Any:
            consumer = self._consumer(ConsumerOptions())
            await consumer.start()
            try:
                return (await consumer.offsets_for_times({tp: timestamp_ms}))[tp]
            finally:
                await consumer.stop()

        answer = self._thread.run(lookup())
        return None if answer is None else int(answer.offset)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        tp = aiokafka.TopicPartition(topic, partition)

        async def lookup() -> tuple[int, int]:
            consumer = self._consumer(ConsumerOptions())
            await consumer.start()
            try:
                low = (await consumer.beginning_offsets([tp]))[tp]
                high = (await consumer.end_offsets([tp]))[tp]
                return int(low), int(high)
            finally:
                await consumer.stop()

        return self._thread.run(lookup())


def _received(record: Any) -> Received:
    return Received(
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
    )
