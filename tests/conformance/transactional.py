"""A transactional producer and a read_committed consumer for each library."""

from __future__ import annotations

import abc
import base64
import contextlib
import itertools
import uuid
from typing import Any

import aiokafka
import confluent_kafka as ck
from aiokafka.errors import KafkaError as AioError
from tests.conformance.clients import Client, ClientFailure, Message
from tests.conformance.clients.aio import AioKafka
from tests.conformance.clients.confluent import Confluent, failure
from tests.conformance.clients.kafka_python import failure as python_failure
from tests.conformance.clients.program import ProgramClient

TIMEOUT_S = 30
CLIENTS = ("confluent-kafka", "aiokafka", "java-4.3.0", "java-3.9.0", "franz-go")
END = b"end"
_names = itertools.count()


class Transactional(abc.ABC):
    """One producer with a transactional id. Raises ClientFailure for errors of the library."""

    @abc.abstractmethod
    def init(self) -> None: ...

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Write and wait until it is acknowledged."""

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def abort(self) -> None: ...

    @abc.abstractmethod
    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """An offset of partition 0 that is committed with the transaction."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def transact(self, topic: str, *values: bytes, partition: int = 0) -> None:
        self.begin()
        self.send(topic, *values, partition=partition)
        self.commit()


class ConfluentTransactional(Transactional):
    def __init__(self, bootstrap: str, name: str, timeout_ms: int) -> None:
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "linger.ms": 1,
            }
        )

    def _do(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except ck.KafkaException as error:
            raise failure(error.args[0]) from error

    def init(self) -> None:
        self._do(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        failures: list[Any] = []
        for value in values:
            self._producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert self._producer.flush(TIMEOUT_S) == 0
        if failures:
            raise failure(failures[0])

    def commit(self) -> None:
        self._do(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._do(self._producer.abort_transaction, TIMEOUT_S)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = ck.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group})
        try:
            metadata = consumer.consumer_group_metadata()
            offsets = [ck.TopicPartition(topic, 0, offset)]
            self._do(self._producer.send_offsets_to_transaction, offsets, metadata, TIMEOUT_S)
        finally:
            consumer.close()

    def close(self) -> None:
        with contextlib.suppress(ck.KafkaException):  # a fenced producer refuses everything
            self._producer.purge()


class AioTransactional(Transactional):
    def __init__(self, client: AioKafka, name: str, timeout_ms: int) -> None:
        self._thread = client._thread
        self._made = self._thread.run(_new_aio(client.bootstrap, name, timeout_ms))

    def _do(self, work: Any) -> Any:
        try:
            return self._thread.run(work)
        except AioError as error:
            raise python_failure(error) from error

    def init(self) -> None:
        self._do(self._made.start())

    def begin(self) -> None:
        self._do(self._made.begin_transaction())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._do(self._made.send_and_wait(topic, value, partition=partition))

    def commit(self) -> None:
        self._do(self._made.commit_transaction())

    def abort(self) -> None:
        self._do(self._made.abort_transaction())

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._do(self._made.send_offsets_to_transaction(offsets, group))

    def close(self) -> None:
        self._do(self._made.stop())


async def _new_aio(bootstrap: str, name: str, timeout_ms: int) -> Any:
    return aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        retry_backoff_ms=20,
    )


class ProgramTransactional(Transactional):
    def __init__(self, client: ProgramClient, name: str, timeout_ms: int) -> None:
        self._program = client.program
        self._name = f"txn-{next(_names)}"
        self._call("open", transactional_id=name, timeout_ms=timeout_ms, bootstrap=client.bootstrap)

    def _call(self, operation: str, **values: Any) -> Any:
        return self._program.call(f"txn_{operation}", name=self._name, **values)

    def init(self) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            encoded = base64.b64encode(value).decode()
            self._call("send", topic=topic, partition=partition, value=encoded)
        self._call("flush")

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._call("offsets", group=group, topic=topic, partition=0, offset=offset)

    def close(self) -> None:
        self._call("close")


def open_transactional(
    client: Client, name: str | None = None, timeout_ms: int = 20_000
) -> Transactional:
    name = name or f"tx-{uuid.uuid4().hex}"
    if isinstance(client, Confluent):
        return ConfluentTransactional(client.bootstrap, name, timeout_ms)
    if isinstance(client, AioKafka):
        return AioTransactional(client, name, timeout_ms)
    assert isinstance(client, ProgramClient)
    return ProgramTransactional(client, name, timeout_ms)


def read_committed(client: Client, topic: str, last: bytes, partition: int = 0) -> list[bytes]:
    """The values that the library returns, from the beginning up to the value `last`."""
    if isinstance(client, Confluent):
        return _read_confluent(client, topic, last, partition)
    if isinstance(client, AioKafka):
        return client._thread.run(_read_aio(client, topic, last, partition))
    assert isinstance(client, ProgramClient)
    name = f"reader-{next(_names)}"
    settings = {"isolation.level": "read_committed"}
    client.program.call(
        "open", name=name, reset="earliest", settings=settings, partitions=[[topic, partition]]
    )
    values: list[bytes] = []
    while last not in values:
        rows = client.program.call("poll", handle=name, timeout_ms=1000)
        values += [base64.b64decode(row["value"]) for row in rows]
    client.program.call("close", handle=name)
    return values


def finish(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """Write a last record outside of any transaction; returns all that a reader gets before it."""
    client.produce(topic, [Message(END, partition=partition)])
    return read_committed(client, topic, END, partition)[:-1]


def _read_confluent(client: Confluent, topic: str, last: bytes, partition: int) -> list[bytes]:
    settings = {
        "bootstrap.servers": client.bootstrap,
        "group.id": "unused",
        "isolation.level": "read_committed",
    }
    consumer = ck.Consumer(settings)
    consumer.assign([ck.TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while last not in values:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, values
            if message.error():
                raise failure(message.error())
            values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


async def _read_aio(client: AioKafka, topic: str, last: bytes, partition: int) -> list[bytes]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=client.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, partition)])
        values: list[bytes] = []
        while last not in values:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value or b"" for record in records]
        return values
    finally:
        await consumer.stop()


__all__ = [
    "CLIENTS",
    "ClientFailure",
    "Transactional",
    "finish",
    "open_transactional",
    "read_committed",
]
