"""Kafka's transactional copy test: consume, produce and commit in transactions while processes are killed.

After kafkatest's transactions_test.py: 100,000 messages, 750 per transaction; brokers and copiers are
killed with kill -9 during the copy. The target must equal the source, message by message.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle, pairwise
from typing import IO, Any, Final, NamedTuple

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from kafkaesque.lab.faults.clients import SILENT, consumer_settings, producer_settings
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.copier import UNUSABLE, CopyOrder
from kafkaesque.lab.faults.fault_run import FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.workload import WorkloadFailed, WorkloadSettings
from kafkaesque.lab.harness.cluster import BROKERS, TargetFailed

MESSAGES: Final = 100_000
PER_TRANSACTION: Final = 750
PARTITIONS: Final = 2
SOURCE, TARGET, GROUP = "copy-source", "copy-target", "copiers"
TRANSACTION_TIMEOUT_MS: Final = 20_000
PAUSE_S: Final = 0.6
STILL_S_MAX: Final = 90.0
"""A copy without progress for this long has stalled for good."""
_POLL_S: Final = 0.05
_FILL_S: Final = 120.0
_END_S: Final = 90.0
_READ_S: Final = 180.0
_CHUNK: Final = 1000


class TransactionsCopy(ClusterRun):
    purpose = "copy a topic in transactions while brokers and copiers are killed hard"
    promise = "the copy is the original: nothing missing, nothing twice, in order"

    def __init__(self) -> None:
        super().__init__()
        self._messages = MESSAGES
        self._source: list[list[bytes]] = []
        self._copiers: list[CopierProcess] = []
        self._reader: TargetReader | None = None

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        """Only a little of the usual load: the copy is the subject of this run."""
        self._messages = options.amount or MESSAGES
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 100),
            seed=options.seed,
            replication_factor=BROKERS,
            senders=1,
            assigned_readers=1,
            subscribed_readers=0,
        )

    def begin(self, context: FaultRunContext) -> None:
        super().begin(context)
        for topic in (SOURCE, TARGET):
            context.workload.create_topic(topic, PARTITIONS)
        servers = self.cluster.bootstrap_servers
        self._source = fill(servers, SOURCE, PARTITIONS, self._messages)
        context.say(f"{self._messages} messages to be copied")
        self._reader = TargetReader(servers, TARGET, PARTITIONS)
        self._reader.start()
        for number in range(PARTITIONS):
            order = CopyOrder(
                bootstrap_servers=servers,
                transactional_id=f"copier-{number}",
                group_id=GROUP,
                source=SOURCE,
                target=TARGET,
                per_transaction=PER_TRANSACTION,
                pause_s=PAUSE_S,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            self._copiers.append(CopierProcess(order))
            self._copiers[-1].start()

    @property
    def _copied(self) -> int:
        return 0 if self._reader is None else len(self._reader.distinct)

    def inject(self, context: FaultRunContext) -> None:
        """Kill copiers and brokers in turn until the copy is done."""
        self._wait_for_more(context, 0)
        for kill in cycle((self._kill_copier, self._kill_broker)):
            before = self._copied
            if before >= self._messages:
                break
            kill(context)
            self._wait_for_more(context, before)
            time.sleep(context.random.uniform(0.0, 1.5))

    def _kill_copier(self, context: FaultRunContext) -> None:
        context.fault(f"kill -9 a copier; {self._copied} copied", ())
        context.random.choice(self._copiers).kill()
        context.count("copiers_killed")

    def _kill_broker(self, context: FaultRunContext) -> None:
        node = context.random.choice(self.cluster.nodes)
        keys = self.keys_led_by(context, [node])
        context.fault(f"kill -9 node {node}; {self._copied} copied", keys)
        self.cluster.kill(node)
        context.count("brokers_killed")
        time.sleep(context.random.uniform(0.5, 3.0))
        self.cluster.bring_up(node)
        self.cluster.wait_recovered()

    def _wait_for_more(self, context: FaultRunContext, before: int) -> None:
        """Wait until the copy makes progress; copiers that gave up are replaced."""
        began = time.monotonic()
        while self._copied <= before < self._messages:
            for copier in self._copiers:
                copier.keep_alive()
            if time.monotonic() - began > STILL_S_MAX:
                silent = [f"{time.monotonic() - one.last_output_at:.0f} s" for one in self._copiers]
                raise TargetFailed(
                    f"the copy stalled at {before} of {self._messages}; copiers were silent "
                    f"for {', '.join(silent)}"
                )
            time.sleep(_POLL_S)
        context.highest("copy_still_ms_max", int((time.monotonic() - began) * 1000))

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = [
            f"copier {number} did not end by itself"
            for number, copier in enumerate(self._copiers)
            if not copier.end()
        ]
        if self._reader is not None:
            self._reader.end()
        target = read_target(self.cluster.bootstrap_servers, TARGET, PARTITIONS)
        errors = [compare(*pair) for pair in zip(self._source, target, strict=True)]
        self._note(context, errors, sum(map(len, target)))
        for number, one in enumerate(errors):
            if not one.is_exact:
                found.append(f"partition {number} differs from the source: {one}")
        if self._reader is not None and self._reader.seen != target:
            found.append(
                "the reader that followed the target saw other messages than the final one"
            )
        if not context.notes.get("brokers_killed") or not context.notes.get("copiers_killed"):
            found.append("the copy finished before anything was killed")
        return [*found, *super().complaints(context)]

    def _note(self, context: FaultRunContext, errors: Sequence[CopyErrors], copied: int) -> None:
        context.notes["messages"] = self._messages
        context.notes["copied"] = copied
        for name in ("missing", "duplicate", "out_of_order"):
            context.notes[name] = sum(getattr(one, name) for one in errors)
        for name in ("transactions", "aborted", "gave_up"):
            context.notes[f"copies_{name}"] = sum(one.counts[name] for one in self._copiers)


def message(number: int) -> bytes:
    return b"%d" % number


def fill(bootstrap_servers: str, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """Write `count` messages over the partitions; returns the messages of each."""
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
    """A copier process for one transactional id; a process that dies is replaced."""

    def __init__(self, order: CopyOrder) -> None:
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter()
        self.last_output_at = time.monotonic()
        """When the process last printed anything."""
        self.failures: list[str] = []

    def start(self) -> None:
        text = msgspec.json.encode(self._order).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kafkaesque.lab.faults.copier", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.last_output_at = time.monotonic()
        self.counts["started"] += 1
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, output: IO[bytes] | None) -> None:
        if output is None:
            return
        with output:
            self._count(output)

    def _count(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            report: dict[str, Any] = msgspec.json.decode(line)
            self.last_output_at = time.monotonic()
            if "copied" in report:
                self.counts["transactions"] += 1
            elif "aborted" in report:
                self.counts["aborted"] += 1
            else:
                self.failures.append(str(report.get("failed")))

    def keep_alive(self) -> None:
        """Replace the process if it has given up."""
        process = self._process
        if process is None or (code := process.poll()) is None:
            return
        if code != UNUSABLE:
            raise WorkloadFailed(f"a copier ended with exit code {code}")
        self.counts["gave_up"] += 1
        self._close()
        self.start()

    def kill(self) -> None:
        """kill -9 the process and start another."""
        if self._process is not None:
            self._process.kill()
            self._close()
            self.counts["killed"] += 1
            self.start()

    def end(self) -> bool:
        """SIGTERM: the process finishes its transaction. False if it had to be killed."""
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
    """Follows the target with read_committed, and counts distinct messages."""

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
    """Reads the whole target with read_committed; WorkloadFailed if the end is not reached."""
    consumer = _new_consumer(bootstrap_servers, topic, partitions)
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + _READ_S
    while len(at_end) < partitions:
        if time.monotonic() > deadline:
            raise WorkloadFailed(f"the end of {topic} was not reached: a transaction hangs")
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


class CopyErrors(NamedTuple):
    """How one partition of the target differs from the source."""

    missing: int
    duplicate: int
    foreign: int
    out_of_order: int
    """Adjacent messages of the target that are in the other order in the source."""

    @property
    def is_exact(self) -> bool:
        return self == CopyErrors(0, 0, 0, 0)


def compare(source: Sequence[bytes], target: Sequence[bytes]) -> CopyErrors:
    """Compare one partition of the target with the source. No I/O."""
    places = {value: number for number, value in enumerate(source)}
    counts = Counter(target)
    ranks = [places[value] for value in target if value in places]
    return CopyErrors(
        missing=sum(value not in counts for value in source),
        duplicate=sum(count - 1 for count in counts.values()),
        foreign=sum(value not in places for value in target),
        out_of_order=sum(later < earlier for earlier, later in pairwise(ranks)),
    )
