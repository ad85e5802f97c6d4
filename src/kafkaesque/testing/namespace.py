"""The topics, groups and records of one test, on a broker shared by many tests.

    orders = namespace.topic("orders", partitions=3)
    namespace.produce(orders, [("alice", "12")])
    namespace.expect(totals, [("alice", "12")], within=5)

Names are made unique, so tests do not affect each other.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkaesque.testing.comparison import compare, show_record
from kafkaesque.testing.records import Received, RecordSpec, fields_of

if TYPE_CHECKING:
    from kafkaesque.testing.broker import Broker, PlainValue
    from kafkaesque.testing.client import SharedClient

_TOPIC_WAIT_S = 0.01
_LABEL_LENGTH_MAX = 80


class Namespace:
    """Topics, groups and records of one test.

    Each read of a topic continues where the last one ended; the first starts at the beginning.
    """

    def __init__(self, broker: Broker, client: SharedClient, label: str = "test") -> None:
        self.broker = broker
        self._client = client
        legal = re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-")[:_LABEL_LENGTH_MAX]
        self._suffix = f"{legal}-{uuid.uuid4().hex[:8]}"
        self._topics: list[str] = []
        self._positions: dict[str, dict[int, int]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for the client setting of the same name."""
        return self.broker.bootstrap_servers

    def topic(self, name: str, partitions: int | None = None, **configs: PlainValue) -> str:
        """Create a topic for this test only and return its full name.

        `configs` as for `Broker.create_topic`: `cleanup_policy="compact"`.
        """
        full_name = f"{name}.{self._suffix}"
        self.broker.create_topic(full_name, partitions, **configs)
        self._topics.append(full_name)
        return full_name

    def group(self, name: str) -> str:
        """A group id for this test only; the same for the same name."""
        return f"{name}.{self._suffix}"

    def produce(
        self, topic: str, records: Sequence[RecordSpec], within: float = 5
    ) -> list[Received]:
        """Write records and return them as stored. TimeoutError after `within` seconds."""
        if isinstance(records, str | bytes):
            raise TypeError("records must be a list, even for one record")
        return self._client.produce(topic, [fields_of(spec) for spec in records], within)

    def consume(self, topic: str, count: int = 1, within: float = 5) -> list[Received]:
        """The next `count` records. AssertionError shows those that arrived if they are fewer."""
        __tracebackhide__ = True  # pytest: show the line of the test
        received = self._read(topic, count, within)
        if len(received) < count:
            rows = "".join(f"\n    {show_record(record)}" for record in received)
            raise AssertionError(
                f"topic {topic}: {len(received)} of {count} record(s) arrived within {within:g} s{rows}"
            )
        return received

    def expect(
        self,
        topic: str,
        records: Sequence[RecordSpec],
        within: float = 5,
        *,
        in_order: bool | None = None,
        allow_more: bool = False,
    ) -> list[Received]:
        """Wait for these records and return them. AssertionError shows the difference.

        Only the given fields of a record are compared: a value alone matches any key. Order counts
        in a topic of one partition (Kafka guarantees none across partitions) unless `in_order` says
        otherwise. Further records that are there already fail the test as well; with `allow_more`
        they stay for the next read.
        """
        __tracebackhide__ = True
        expected = [fields_of(spec) for spec in records]
        received = self._read(topic, len(expected), within)
        if not allow_more:
            received += self._read_to_end(topic, within)
        if in_order is None:
            in_order = len(self._positions.get(topic, ())) <= 1
        comparison = compare(expected, received, in_order=in_order)
        if not comparison.is_equal:
            raise AssertionError(comparison.report(topic, within))
        return received

    def close(self) -> None:
        """Delete the topics. Raises BrokerFailed if the broker failed during the test."""
        self.broker.check()
        if self._topics:
            # Without waiting: names are unique, so the remains affect no other test.
            self.broker.delete_topics(self._topics, wait=False)
            self._topics = []

    # -- reading --------------------------------------------------------------------------------

    def _read(self, topic: str, count: int, within_s: float) -> list[Received]:
        if count == 0:
            return []
        deadline = time.monotonic() + within_s
        positions = self._wait_for_topic(topic, deadline)
        return self._advance(positions, self._client.read(topic, positions, deadline, count=count))

    def _read_to_end(self, topic: str, within_s: float) -> list[Received]:
        """The records that are there at this moment."""
        positions = self._wait_for_topic(topic, deadline=0.0)
        ends = self._client.end_offsets(topic, len(positions))
        unread = {index: at for index, at in positions.items() if at < ends[index]}
        if not unread:
            return []
        deadline = time.monotonic() + within_s
        return self._advance(positions, self._client.read(topic, unread, deadline, count=None))

    def _advance(self, positions: dict[int, int], received: list[Received]) -> list[Received]:
        for record in received:
            positions[record.partition] = record.offset + 1
        return received

    def _wait_for_topic(self, topic: str, deadline: float) -> dict[int, int]:
        """The next offset of each partition. Waits for the topic: the application may create it."""
        while not (partition_count := self._client.partition_count(topic)):
            if time.monotonic() > deadline:
                raise AssertionError(f"topic {topic} does not exist")
            time.sleep(_TOPIC_WAIT_S)
        positions = self._positions.setdefault(topic, {})
        for index in range(partition_count):
            positions.setdefault(index, 0)
        return positions
