"""A program that copies a topic in transactions: consume, produce, commit, all or nothing.

    python -m kafkaesque.lab.faults.copier '{"bootstrap_servers": ..., "transactional_id": ..., ...}'

Like Kafka's own TransactionalMessageCopier: records of partition p of the source go to
partition p of the target, and the offsets of the group are committed in the same transaction. It
prints one line per transaction, and ends with exit code 3 when its producer is fenced or failed for good;
the parent then starts another. Its standard input is a pipe of its parent: it ends with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from kafkaesque.lab.faults.clients import SILENT, consumer_settings, error_in, producer_settings

UNUSABLE: Final = 3
"""Exit code of a copier whose producer is fenced or failed for good."""
_CALL_S: Final = 60.0
_POLL_S: Final = 0.5
_QUIET_S: Final = 1.0
"""A transaction that is not full is committed after this long without a new record."""


class CopyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The source, the target and the pace of a copy."""

    bootstrap_servers: str
    transactional_id: str
    group_id: str
    source: str
    target: str
    per_transaction: int
    pause_s: float
    """Between two transactions, so that a copy lasts long enough to be disturbed."""
    transaction_timeout_ms: int = 20_000


class Copier:
    """One copier, until it ends or its producer fails."""

    def __init__(self, order: CopyOrder) -> None:
        self._order = order
        servers = order.bootstrap_servers
        self._producer = Producer(
            {
                **producer_settings(servers),
                "transactional.id": order.transactional_id,
                "transaction.timeout.ms": order.transaction_timeout_ms,
                "message.timeout.ms": order.transaction_timeout_ms,
            },
            logger=SILENT,
        )
        self._consumer = Consumer(consumer_settings(servers, order.group_id), logger=SILENT)
        self._taken: list[Message] = []
        self._is_ended = False

    def end(self, *_: object) -> None:
        self._is_ended = True

    def run(self) -> None:
        """Copy until `end`. Raises KafkaException if it is neither retriable nor abortable."""
        self._call(self._producer.init_transactions, _CALL_S)
        # A new assignment starts at the committed offsets: records read before are read again.
        self._consumer.subscribe(
            [self._order.source], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved
        )
        while not self._is_ended:
            self._take()
            if self._taken:
                self._copy()
                time.sleep(self._order.pause_s)
        self._consumer.close()

    def _moved(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._taken.clear()

    def _take(self) -> None:
        """Records for one transaction."""
        self._taken.clear()
        last_record_at = time.monotonic()
        while len(self._taken) < self._order.per_transaction and not self._is_ended:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._taken.append(message)
                last_record_at = time.monotonic()
            elif time.monotonic() - last_record_at > _QUIET_S:
                return

    def _copy(self) -> None:
        ends: dict[int, int] = {}
        try:
            self._producer.begin_transaction()
            for message in self._taken:
                partition, offset = message.partition() or 0, message.offset() or 0
                self._producer.produce(
                    self._order.target, message.value(), message.key(), partition
                )
                ends[partition] = offset + 1
            offsets = [TopicPartition(self._order.source, p, end) for p, end in ends.items()]
            group = self._consumer.consumer_group_metadata()
            self._call(self._producer.send_offsets_to_transaction, offsets, group, _CALL_S)
            self._call(self._producer.commit_transaction, _CALL_S)
        except KafkaException as exception:
            error = error_in(exception)
            if error is None or not error.txn_requires_abort():
                raise
            report(aborted=len(self._taken), why=str(error))
            self._call(self._producer.abort_transaction, _CALL_S)
            self._rewind()
        else:
            report(copied=len(self._taken), partitions=sorted(ends))

    def _rewind(self) -> None:
        """Seek to the committed offsets."""
        places = self._consumer.assignment()
        for place in self._call(self._consumer.committed, places, _CALL_S) if places else ():
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)

    def _call(self, work: Any, *arguments: Any) -> Any:
        """Call `work`, and retry while its error is retriable."""
        while True:
            try:
                return work(*arguments)
            except KafkaException as exception:
                error = error_in(exception)
                if error is None or not error.retriable():
                    raise


def report(**values: object) -> None:
    sys.stdout.write(msgspec.json.encode(values).decode() + "\n")
    sys.stdout.flush()


def _end_with_parent(copier: Copier) -> None:
    # Not through sys.stdin, whose lock would be held at the interpreter's end.
    while os.read(0, 1):
        pass
    copier.end()


def main() -> int:
    copier = Copier(msgspec.json.decode(sys.argv[1], type=CopyOrder))
    signal.signal(signal.SIGTERM, copier.end)
    threading.Thread(target=_end_with_parent, args=(copier,), daemon=True).start()
    try:
        copier.run()
    except KafkaException as exception:
        report(failed=str(error_in(exception)))
        return UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
