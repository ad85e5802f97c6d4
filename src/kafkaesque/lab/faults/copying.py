"""The copy of a topic by killable processes: the source filled, copiers kept alive, the target judged."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, Final, NamedTuple

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from kafkaesque.lab.faults.clients import SILENT, consumer_settings, producer_settings
from kafkaesque.lab.faults.copier import UNUSABLE, CopyOrder
from kafkaesque.lab.faults.workload import WorkloadFailed

_FILL_S: Final = 120.0
_END_S: Final = 90.0
_READ_S: Final = 180.0
_CHUNK: Final = 1000


def message(number: int) -> bytes:
    return b"%d" % number


def fill(bootstrap_servers: str, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """Write `count` messages over the partitions; what stands in each."""
    producer = Producer(producer_settings(bootstrap_servers), logger=SILENT)
    written: list[list[bytes]] = [[] for _ in range(partitions)]
    for number in range(count):
        partition = number % partitions
        written[partition].append(message(number))
        producer.produce(topic, message(number), partition=partition)
        if number % _CHUNK == 0:
            producer.flush(_FILL_S)
    if producer.flush(_FILL_S):
        raise WorkloadFailed(f"{topic} could not be filled")
    return written


class CopierProcess:
    """Keeps one transactional id copying: a process that dies is followed by another."""

    def __init__(self, order: CopyOrder) -> None:
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter()
        self.heard_at = time.monotonic()
        """When its process last told of anything."""
        self.failures: list[str] = []

    def start(self) -> None:
        text = msgspec.json.encode(self._order).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kafkaesque.lab.faults.copier", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.heard_at = time.monotonic()
        self.counts["started"] += 1
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, output: IO[bytes] | None) -> None:
        if output is None:
            return
        with output:
            self._note(output)

    def _note(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            told: dict[str, Any] = msgspec.json.decode(line)
            self.heard_at = time.monotonic()
            if "copied" in told:
                self.counts["transactions"] += 1
            elif "aborted" in told:
                self.counts["aborted"] += 1
            else:
                self.failures.append(str(told.get("failed")))

    def keep_alive(self) -> None:
        """Start another one if it has ended by itself."""
        process = self._process
        if process is None or (code := process.poll()) is None:
            return
        if code != UNUSABLE:
            raise WorkloadFailed(f"a copier ended with exit code {code}")
        self.counts["gave_up"] += 1
        self._close()
        self.start()

    def kill(self) -> None:
        """kill -9, and the next one follows."""
        if self._process is not None:
            self._process.kill()
            self._close()
            self.counts["killed"] += 1
            self.start()

    def end(self) -> bool:
        """Let it finish what it has; False if it had to be killed."""
        process = self._process
        if process is None:
            return True
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
        finally:
            self._close()
        return True

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


class TargetReader(threading.Thread):
    """Follows the target as a reader of committed transactions does, and counts what is new."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(name="target-reader", daemon=True)
        self._consumer = _new_consumer(bootstrap_servers, topic, partitions)
        self._ended = threading.Event()
        self.seen: list[list[bytes]] = [[] for _ in range(partitions)]
        self.distinct: set[bytes] = set()

    def run(self) -> None:
        while not self._ended.is_set():
            for one in self._consumer.consume(500, 0.2):
                if one.error() is None:
                    value = one.value() or b""
                    self.seen[one.partition() or 0].append(value)
                    self.distinct.add(value)
        self._consumer.close()

    def end(self) -> None:
        self._ended.set()
        self.join(_END_S)


def read_target(bootstrap_servers: str, topic: str, partitions: int) -> list[list[bytes]]:
    """All that a reader of committed transactions gets; WorkloadFailed if the end is not reached."""
    consumer = _new_consumer(bootstrap_servers, topic, partitions)
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + _READ_S
    while len(at_end) < partitions:
        if time.monotonic() > deadline:
            raise WorkloadFailed(f"the end of {topic} is not reached: a transaction hangs")
        for one in consumer.consume(500, 0.2):
            error, partition = one.error(), one.partition() or 0
            if error is None:
                values[partition].append(one.value() or b"")
                at_end.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(partition)
    consumer.close()
    return values


def _new_consumer(bootstrap_servers: str, topic: str, partitions: int) -> Consumer:
    settings = consumer_settings(bootstrap_servers, "copy-check") | {"enable.partition.eof": True}
    consumer = Consumer(settings, logger=SILENT)
    places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
    consumer.assign(places)
    return consumer


class Judged(NamedTuple):
    missing: int
    duplicate: int
    foreign: int
    out_of_order: int
    """Neighbours in the target that stand the other way round in the source."""

    @property
    def is_exact(self) -> bool:
        return self == Judged(0, 0, 0, 0)


def judge(source: Sequence[bytes], target: Sequence[bytes]) -> Judged:
    """One partition: is the copy the original? No I/O."""
    places = {value: number for number, value in enumerate(source)}
    counts = Counter(target)
    ranks = [places[value] for value in target if value in places]
    return Judged(
        missing=sum(value not in counts for value in source),
        duplicate=sum(count - 1 for count in counts.values()),
        foreign=sum(value not in places for value in target),
        out_of_order=sum(later < earlier for earlier, later in pairwise(ranks)),
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """All partitions together."""

    judged: Sequence[Judged]

    def of(self, name: str) -> int:
        return sum(int(getattr(one, name)) for one in self.judged)
