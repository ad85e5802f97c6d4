"""The load of a run: topics, sender and reader threads, final reads. It records a history."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.lab.faults.checks.history import ClientOperation
from kafkaesque.lab.faults.clients import SILENT, Partitions, admin_settings
from kafkaesque.lab.faults.readers import FinalReader, RecordingReader
from kafkaesque.lab.faults.recorder import Recorder
from kafkaesque.lab.faults.sender import Sender
from kafkaesque.testing.waiting import poll_until

_CREATE_TIMEOUT_S: Final = 30.0
_JOIN_TIMEOUT_S: Final = 60.0
_FINAL_TIMEOUT_S: Final = 90.0
_FINAL_READERS: Final = 2


class WorkloadFailed(Exception):
    """The load itself failed; the run proves nothing about the system under test."""


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """The number of clients and their behaviour."""

    records_per_s: int = 1000
    seed: int = 1
    topics: int = 2
    partitions_per_topic: int = 2
    replication_factor: int = 1
    senders: int = 3
    assigned_readers: int = 2
    subscribed_readers: int = 2
    value_bytes: int = 200
    crash_every_s: float = 30.0
    """The mean lifetime of a client before another replaces it."""
    session_timeout_ms: int = 6000
    """After this long without a heartbeat a reader is removed from its group."""


class Workload:
    """Used once, in this order: `start`, `stop`, `read_everything`, `operations`."""

    def __init__(
        self, bootstrap_servers: str, settings: WorkloadSettings, say: Callable[[str], None]
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._settings = settings
        self._say = say
        self.recorder = Recorder()
        names = tuple(f"faults-{number}" for number in range(settings.topics))
        self.partitions = Partitions(names, settings.partitions_per_topic)
        rng = random.Random(settings.seed)
        self._senders = [self._sender(number, rng) for number in range(settings.senders)]
        self._readers = [self._reader(None, rng) for _ in range(settings.assigned_readers)]
        self.group_id = f"faults-{uuid.UUID(int=rng.getrandbits(128))}"
        """The group of the subscribed readers."""
        subscribed = range(settings.subscribed_readers)
        self._readers += [self._reader(self.group_id, rng) for _ in subscribed]

    def _sender(self, number: int, rng: random.Random) -> Sender:
        return Sender(
            self._bootstrap_servers,
            self.partitions,
            self.recorder,
            number=number,
            senders=self._settings.senders,
            records_per_s=self._settings.records_per_s / self._settings.senders,
            value_bytes=self._settings.value_bytes,
            seed=rng.getrandbits(32),
            crash_every_s=self._settings.crash_every_s,
        )

    def _reader(self, group_id: str | None, rng: random.Random) -> RecordingReader:
        return RecordingReader(
            self._bootstrap_servers,
            self.partitions,
            self.recorder,
            group_id=group_id,
            seed=rng.getrandbits(32),
            crash_every_s=self._settings.crash_every_s,
            session_timeout_ms=self._settings.session_timeout_ms,
        )

    def start(self) -> None:
        """Create the topics and start all clients."""
        self._create_topics()
        for thread in (*self._readers, *self._senders):
            thread.start()

    def _create_topics(self) -> None:
        for name in self.partitions.topics:
            self.create_topic(name, self.partitions.partitions_per_topic)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; WorkloadFailed if that takes too long."""
        admin = AdminClient(admin_settings(self._bootstrap_servers), logger=SILENT)
        new = NewTopic(name, partitions, self._settings.replication_factor)
        try:
            admin.create_topics([new])[name].result(_CREATE_TIMEOUT_S)
        except (KafkaException, TimeoutError) as exception:
            raise WorkloadFailed(f"cannot create topic {name}: {exception!r}") from exception

    @property
    def group_polls(self) -> int:
        """How often members of the group have read something and committed it."""
        return sum(reader.committed_polls for reader in self._readers)

    def wait_for_first(self, within_s: float) -> None:
        """Wait until records are being acknowledged."""
        poll_until(
            lambda: self.recorder.acknowledged > 0,
            "an acknowledged record",
            within_s,
            error=WorkloadFailed,
        )

    def stop(self, *, is_served: bool = True) -> None:
        """Stop all clients and wait until the outcome of every record is recorded.

        If no broker serves any more (`is_served` False), readers may block in their last call: they are
        not waited for.
        """
        for sender in self._senders:
            sender.end()
        self._join(self._senders)
        for reader in self._readers:
            reader.end()
        if is_served:
            self._join(self._readers)

    def read_everything(self) -> bool:
        """Read all keys from the beginning, twice; True if the end of each was reached."""
        for _ in range(_FINAL_READERS):
            final = FinalReader(self._bootstrap_servers, self.partitions, self.recorder, self._say)
            complete = final.read(_FINAL_TIMEOUT_S)
            if final.skipped:
                self._say(f"a final reader skipped {final.skipped} unreadable offset(s)")
            if not complete:
                return False
        return True

    def operations(self) -> list[ClientOperation]:
        """The history so far."""
        return self.recorder.operations()

    def _join(self, threads: list[Sender] | list[RecordingReader]) -> None:
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise WorkloadFailed(f"{thread.name} did not end")
