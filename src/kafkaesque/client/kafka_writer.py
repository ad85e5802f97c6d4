"""LogWriter over librdkafka: idempotent, with a bounded buffer, awaited delivery and transactions.

librdkafka calls back from `poll`, so one thread polls for the life of the writer. It wakes the
event loop once per chunk of a `send`, not once per record: a wake-up costs more than a record.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.client.kafka_errors import (
    error_of,
    translate,
    translate_delivery,
    translate_transaction_start,
)
from kafkaesque.client.kafka_reader import KafkaReader
from kafkaesque.client.ports import (
    CommitPoint,
    LogError,
    LogReader,
    Record,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import NO_TIMESTAMP, Offset, TopicPartition

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
CHUNK_RECORDS = 1000
"""Records of one `send` that are awaited together and leave the buffer together."""
TRANSACTION_SECONDS_MAX = 30.0


class _ChunkDelivery:
    """One chunk in flight. `acknowledge` runs in the polling thread, the rest on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.offsets: list[int] = []
        self.failure: LogError | None = None
        self._lock = threading.Lock()
        self._outstanding = 1
        """Records not yet acknowledged, plus one until the sender has handed over all of them."""

    def begin(self, index: int) -> None:
        check(index == len(self.offsets), "records are handed to librdkafka in order")
        with self._lock:
            self._outstanding += 1
            self.offsets.append(-1)

    def withdraw(self) -> None:
        """The record of the last `begin` was refused."""
        with self._lock:
            self._outstanding -= 1
            self.offsets.pop()

    def acknowledge(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.failure is None:
            self.failure = translate_delivery(error, message.topic() or "?")
        if error is None:
            self.offsets[index] = message.offset() or 0
        self.release()

    def release(self) -> None:
        with self._lock:
            self._outstanding -= 1
            last = self._outstanding == 0
        if last:
            # The loop is closed if a program ends without closing its writer. Nothing waits then.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class KafkaWriter:
    """Made by `start`; see LogWriter."""

    def __init__(self, config: Mapping[str, Any], options: WriterOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        try:
            self._producer = Producer(_producer_config(config, options))
        except KafkaException as exception:
            raise translate(error_of(exception), "make a producer") from None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="log-writer", daemon=True)
        self._chunk_size = min(CHUNK_RECORDS, options.buffered_records_max)
        self._produce_lock = asyncio.Lock()
        self._room = asyncio.Condition()
        self._buffered = 0
        self._in_transaction = False
        self._transaction_lock = asyncio.Lock()

    @classmethod
    async def start(cls, config: Mapping[str, Any], options: WriterOptions) -> Self:
        writer = cls(config, options)
        writer._thread.start()
        if options.transactional_id is not None:
            try:
                await asyncio.to_thread(writer._producer.init_transactions, TRANSACTION_SECONDS_MAX)
            except KafkaException as exception:
                await writer._stop_polling()
                raise translate_transaction_start(error_of(exception)) from None
            except asyncio.CancelledError:
                writer._stopping.set()
                raise
        return writer

    def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(POLL_SECONDS)
            except KafkaException:
                # A fatal error is raised here too. The next `send` gets it as well, and the deliveries
                # of records in flight must still be polled for.
                self._stopping.wait(POLL_SECONDS)

    @property
    def transactional(self) -> bool:
        return self._options.transactional_id is not None

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        if self.transactional and not self._in_transaction:
            raise LogError("a transactional writer can send only inside `async with transaction()`")
        tasks: list[asyncio.Task[_ChunkDelivery]] = []
        waiting = iter(records)
        try:
            while chunk := list(itertools.islice(waiting, self._chunk_size)):
                await self._make_room(len(chunk))
                tasks.append(self._loop.create_task(self._send_chunk(chunk)))
                # The task runs up to its first wait now, so that chunks are sent in order.
                await asyncio.sleep(0)
        finally:
            # Chunks that were handed over are in flight, whatever happened to the next one.
            sent = await asyncio.shield(asyncio.gather(*tasks))
        for delivery in sent:
            if delivery.failure is not None:
                raise delivery.failure
        return [Offset(offset) for delivery in sent for offset in delivery.offsets]

    async def _send_chunk(self, chunk: Sequence[Record]) -> _ChunkDelivery:
        delivery = _ChunkDelivery(self._loop)
        async with self._produce_lock:
            for index, record in enumerate(chunk):
                if not await self._produce(delivery, index, record):
                    break
        delivery.release()
        await delivery.done
        async with self._room:
            self._buffered -= len(chunk)
            self._room.notify_all()
        return delivery

    async def _make_room(self, count: int) -> None:
        async with self._room:
            await self._room.wait_for(
                lambda: self._buffered + count <= self._options.buffered_records_max
            )
            self._buffered += count

    async def _produce(self, delivery: _ChunkDelivery, index: int, record: Record) -> bool:
        while True:
            delivery.begin(index)
            try:
                self._producer.produce(**_arguments(record, delivery, index))
                return True
            except BufferError:
                # librdkafka's buffer is full in bytes; its own thread drains it.
                delivery.withdraw()
                await asyncio.sleep(POLL_SECONDS / 10)
            except KafkaException as exception:
                delivery.withdraw()
                delivery.failure = translate_delivery(error_of(exception), record.topic)
                return False

    def transaction(self) -> AbstractAsyncContextManager[None]:
        if not self.transactional:
            raise TransactionsUnsupported("this writer was opened without a transactional id")
        return self._transaction()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self._transaction_lock:
            self._call(self._producer.begin_transaction, "begin a transaction")
            self._in_transaction = True
            try:
                yield
                await self._call_in_thread(self._producer.commit_transaction, "commit")
            except BaseException:
                # Any exception in the block, cancellation too, aborts the transaction and propagates.
                with contextlib.suppress(LogError):
                    await self._call_in_thread(self._producer.abort_transaction, "abort")
                raise
            finally:
                self._in_transaction = False

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        check(self._in_transaction, "offsets are sent inside a transaction")
        check(isinstance(reader, KafkaReader), "a Kafka writer needs a Kafka reader")
        if isinstance(reader, KafkaReader):
            offsets, group = await reader.group_positions(points)
            await self._call_in_thread(
                lambda timeout_s: self._producer.send_offsets_to_transaction(
                    offsets, group, timeout_s
                ),
                "commit offsets in a transaction",
            )

    def _call(self, function: Any, doing: str) -> None:
        try:
            function()
        except KafkaException as exception:
            raise translate(error_of(exception), doing) from None

    async def _call_in_thread(self, function: Any, doing: str) -> None:
        try:
            await asyncio.to_thread(function, TRANSACTION_SECONDS_MAX)
        except KafkaException as exception:
            raise translate(error_of(exception), doing) from None

    async def close(self) -> None:
        if not self._thread.is_alive():
            return
        timeout_s = self._options.delivery_timeout_ms / 1000
        left = await asyncio.to_thread(self._producer.flush, timeout_s)
        if left:
            logger.warning("writer closed with unacknowledged records: count=%d", left)
        await self._stop_polling()

    async def _stop_polling(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)


def _producer_config(config: Mapping[str, Any], options: WriterOptions) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": options.linger_ms,
        "delivery.timeout.ms": options.delivery_timeout_ms,
        # We bound the number of records. librdkafka's limit is higher, so that it never refuses first.
        "queue.buffering.max.messages": options.buffered_records_max + 1000,
    }
    if options.transactional_id is not None:
        ours["transactional.id"] = options.transactional_id
        ours["transaction.timeout.ms"] = max(options.delivery_timeout_ms, 60_000)
    return {**ours, **config}


def _arguments(record: Record, delivery: _ChunkDelivery, index: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "topic": record.topic,
        "key": record.key,
        "value": record.value,
        "on_delivery": lambda error, message: delivery.acknowledge(index, error, message),
    }
    if record.headers:
        arguments["headers"] = list(record.headers)
    if record.partition is not None:
        arguments["partition"] = record.partition
    if record.timestamp_ms != NO_TIMESTAMP:
        arguments["timestamp"] = record.timestamp_ms
    return arguments
