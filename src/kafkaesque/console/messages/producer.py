"""Produces single records, and replays records of one topic to another."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException, Producer

from kafkaesque.console.messages.record import ReadRecord
from kafkaesque.console.messages.scan import ScanFailed, Scanner, ScanPlan
from kafkaesque.console.rules.view import Document

REPLAY_RECORDS_MAX: Final = 1_000_000
FLUSH_SECONDS_MAX: Final = 30.0
ANY_PARTITION: Final = -1

RecordHeaders = list[tuple[str, str | bytes | None]]


class ProduceFailed(Exception):
    """Some or all records were not written; the message gives the reason."""


class NewRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record to produce. `encoding`, for both key and value, is text or base64."""

    value: str | None = None
    key: str | None = None
    partition: int = -1
    headers: dict[str, str] = {}
    encoding: str = "text"


def to_bytes(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ProduceFailed(f"not base64: {error}") from None
    if encoding != "text":
        raise ProduceFailed("encoding must be text or base64")
    return text.encode()


class RecordProducer:
    """A lazily created idempotent producer, so that a retry writes nothing twice."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = {"log_level": 0, "enable.idempotence": True, **properties}
        self._producer: Producer | None = None

    def _get(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._properties)
        return self._producer

    async def write(self, topic: str, record: NewRecord) -> Document:
        """Produce a record; returns its topic, partition and offset."""
        key, value = to_bytes(record.key, record.encoding), to_bytes(record.value, record.encoding)
        headers: RecordHeaders = [(name, text.encode()) for name, text in record.headers.items()]
        return await asyncio.to_thread(self._write, topic, (key, value), record.partition, headers)

    def _write(
        self,
        topic: str,
        data: tuple[bytes | None, bytes | None],
        partition: int,
        headers: RecordHeaders,
    ) -> Document:
        report: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            report.extend((error, message))

        producer = self._get()
        try:
            producer.produce(topic, key=data[0], value=data[1], headers=headers,
                             on_delivery=delivered, partition=max(partition, ANY_PARTITION))  # fmt: skip
        except (KafkaException, BufferError) as error:
            raise ProduceFailed(str(error)) from None
        if producer.flush(FLUSH_SECONDS_MAX) or not report:
            raise ProduceFailed("the brokers did not acknowledge the record in time")
        failure, message = report
        if failure is not None:
            raise ProduceFailed(failure.str())
        return {"topic": topic, "partition": message.partition(), "offset": message.offset()}

    async def replay(self, scanner: Scanner, plan: ScanPlan, to: str) -> Document:
        """Copy the records that `plan` finds to topic `to`; a header records the origin of each copy."""
        copied = 0
        failures: list[str] = []
        try:
            async for found in scanner.scan(plan):
                if found.records:
                    await asyncio.to_thread(self._copy, plan.topic, to, found.records, failures)
                copied += len(found.records)
                if failures:
                    raise ProduceFailed(f"{failures[0]}; about {copied} records were copied")
        except ScanFailed as error:
            raise ProduceFailed(f"{error}; {copied} records were copied") from None
        return {"from": plan.topic, "to": to, "copied": copied}

    def _copy(self, origin: str, to: str, records: list[ReadRecord], failures: list[str]) -> None:
        producer = self._get()

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error.str())

        for record in records:
            place = f"{origin}-{record.partition}@{record.offset}"
            headers: RecordHeaders = [*record.header_list, ("replayed-from", place.encode())]
            while True:
                try:
                    producer.produce(to, key=record.key_bytes, value=record.value_bytes,
                                     headers=headers, on_delivery=delivered)  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    failures.append(str(error))
                    return
        if producer.flush(FLUSH_SECONDS_MAX):
            failures.append("the brokers did not acknowledge all records in time")
