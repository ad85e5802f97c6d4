"""Totals per customer: reads `orders`, keeps the sums, writes every new sum to `totals`.

    python orders.py --bootstrap-servers localhost:9092

An order is JSON like {"customer": "alice", "cents": 1250}, keyed by its customer. A total is
{"cents": 1250, "upto": 0}: the sum, and the offset of the last order in it. `totals` is compacted,
so it is also the memory of the service, which reads it when it starts. Offsets are committed after
totals are stored: a crash repeats orders, and `upto` tells which of them are counted already.
"""

from __future__ import annotations

import argparse
import json
import threading
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Topics:
    orders: str = "orders"
    totals: str = "totals"
    rejected: str = "rejected"


@dataclass(frozen=True)
class Total:
    cents: int = 0
    upto: int = -1


@dataclass
class Totals:
    """The rules, without Kafka."""

    by_customer: dict[str, Total] = field(default_factory=dict)

    def add(self, order: bytes | None, offset: int) -> tuple[str, Total] | None:
        """The customer and the new total; None if counted before; ValueError if this is no order."""
        try:
            content = json.loads(order or b"")
            customer, cents = content["customer"], content["cents"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"not an order: {error}") from None
        if not isinstance(customer, str) or not isinstance(cents, int):
            raise ValueError("an order has a customer's name and whole cents")
        total = self.by_customer.get(customer, Total())
        if offset <= total.upto:
            return None
        total = self.by_customer[customer] = Total(total.cents + cents, offset)
        return customer, total


class Service:
    """Runs in the caller's thread until `stop`, which any thread may call."""

    def __init__(self, bootstrap_servers: str, group: str, topics: Topics | None = None) -> None:
        self._topics = topics or Topics()
        self._totals = Totals()
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._remember()
            self._consumer.subscribe([self._topics.orders])
            while not self._stopping.is_set():
                messages = self._consumer.consume(100, POLL_SECONDS)
                for message in messages:
                    self._take(message)
                if messages:
                    self._producer.flush()
                    self._consumer.commit(asynchronous=False)
        finally:
            self._consumer.close()

    def _remember(self) -> None:
        """Read the totals of earlier runs."""
        name = self._topics.totals
        metadata = self._consumer.list_topics(name, TIMEOUT_SECONDS).topics[name]
        for index in metadata.partitions:
            partition = TopicPartition(name, index, OFFSET_BEGINNING)
            first, end = self._consumer.get_watermark_offsets(partition, TIMEOUT_SECONDS)
            self._consumer.assign([partition])
            while first < end:
                for message in self._consumer.consume(100, POLL_SECONDS):
                    first = _checked(message).offset() + 1
                    customer = message.key().decode()
                    self._totals.by_customer[customer] = Total(**json.loads(message.value()))
        self._consumer.unassign()

    def _take(self, message: Message) -> None:
        try:
            counted = self._totals.add(_checked(message).value(), message.offset())
        except ValueError as error:
            headers = [("reason", str(error).encode())]
            self._producer.produce(self._topics.rejected, message.value(), headers=headers)
            return
        if counted is not None:
            customer, total = counted
            self._producer.produce(
                self._topics.totals, json.dumps(vars(total)), key=customer.encode()
            )


def _checked(message: Message) -> Message:
    if message.error():
        raise KafkaException(message.error())
    return message


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--group", default="order-totals")
    arguments = parser.parse_args()
    service = Service(arguments.bootstrap_servers, arguments.group)
    try:
        service.run()
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
