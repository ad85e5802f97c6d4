"""Several brokers of one cluster, each a process of its own: for kill -9, SIGSTOP and the like.

    with ClusterProcesses(3, tmp_path) as cluster:
        cluster.kill(cluster.leader_of("orders"))
        cluster.restart(0, 1, 2)

For everything that needs no real process `cluster.py` is quicker and knows more.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.broker import PlainValue
from kafkaesque.testing.broker_process import BrokerNotReady, BrokerProcess
from kafkaesque.testing.cluster_layout import Layout, cluster_settings
from kafkaesque.testing.cluster_view import PartitionSeen, Sight, View, WatchedCluster
from kafkaesque.testing.operations import setting_texts
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

ASK_TIMEOUT_S = 2.0
CREATE_TIMEOUT_S = 30.0
METADATA_VERSION = 12
DESCRIBE_QUORUM_VERSION = 1
CREATE_TOPICS_VERSION = 7
CONTROLLER_LOG = "__cluster_metadata"
"""By which Kafka's clients know the controller's group."""


class TopicRefused(Exception):
    """The cluster did not create a topic."""


class ClusterProcesses(WatchedCluster):
    """`count` brokers with the node ids 0, 1, ... below `directory`, which is kept.

    The processes end with this one, however it ends.
    """

    def __init__(
        self,
        count: int,
        directory: Path,
        *,
        settings: Mapping[str, PlainValue] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._layout = Layout(directory, count, cluster_settings(count, settings))
        self._processes = [
            BrokerProcess(
                self._layout.data(number),
                listen=self._layout.address(number),
                environment=environment,
            )
            for number in range(count)
        ]
        self._running: set[int] = set()
        self._paused: set[int] = set()

    # -- life of the cluster ----------------------------------------------------------------------

    def start(self) -> Self:
        """Return when every broker serves and votes."""
        try:
            self.restart(*range(self._layout.count))
            self.wait_until_joined()
        except BaseException:
            # Ctrl-C too: no process is left running behind the error that goes on.
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill every broker that runs: their data is nobody's any more."""
        self.kill(*self.running)
        self._layout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- life of a broker -------------------------------------------------------------------------

    def kill(self, *numbers: int) -> None:
        """kill -9, all at once."""
        ended = self._running.intersection(numbers)
        for number in ended:
            self._processes[number].signal(signal.SIGKILL)
        for number in ended:
            self._processes[number].kill()
            self._gone(number)

    def stop(self, *numbers: int) -> None:
        """End brokers in order, one after the other."""
        for number in numbers:
            if number in self._running:
                self.resume(number)
                code = self._processes[number].stop()
                self._gone(number)
                if code != 0:
                    log = self._processes[number].log.read_text()[-4000:]
                    raise BrokerNotReady(f"broker {number} ended with exit code {code}:\n{log}")

    def restart(self, *numbers: int) -> None:
        """Have brokers run again, whatever became of them, and wait until they serve. Those that
        run are ended in order before.

        Without a majority of its fellows no broker gets to serve: name them all at once.
        """
        self.stop(*numbers)
        all_settings = {number: self._layout.settings(number) for number in numbers}
        for number, settings in all_settings.items():
            # The process has its own options for these two.
            del settings["log.dirs"], settings["listeners"]
            self._processes[number].settings = {**setting_texts(settings)}
            self._processes[number].launch()
            self._running.add(number)
        for number in numbers:
            try:
                self._processes[number].wait_ready()
            except BrokerNotReady:
                self._gone(number)
                raise

    def wipe(self, number: int) -> None:
        """Kill a broker, if it runs, and remove its data. `restart` brings it back as a new one."""
        self.kill(number)
        shutil.rmtree(self._processes[number].data)

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        self._processes[number].signal(signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        if number in self._paused:
            self._processes[number].signal(signal.SIGCONT)
            self._paused.discard(number)

    def mend(self) -> None:
        """Undo whatever was done to brokers, and wait until all are in sync: for the next test."""
        for number in tuple(self._paused):
            self.resume(number)
        self.restart(*set(range(self._layout.count)) - self._running)
        self.wait_until_joined()
        self.wait_until_in_sync()

    def _gone(self, number: int) -> None:
        self._running.discard(number)
        self._paused.discard(number)

    # -- facts ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, for the setting of the same name of any client."""
        return self._layout.bootstrap_servers

    def address(self, number: int) -> str:
        """HOST:PORT of one broker, be it up or not."""
        return self._layout.address(number)

    def process(self, number: int) -> BrokerProcess:
        """One broker, up or not: its log, its data, its pid."""
        return self._processes[number]

    @property
    def running(self) -> list[int]:
        return sorted(self._running)

    # -- what a test may ask ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        replicas: Mapping[int, list[int]] | None = None,
        **configs: PlainValue,
    ) -> None:
        """Create a topic and wait until every partition has a leader. `replicas` places each
        partition; `configs` are Kafka's, with underscores for dots."""
        texts = setting_texts({name.replace("_", "."): value for name, value in configs.items()})
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in (replicas or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in texts.items()],
        )
        answer = wire_call(
            self.address(self._awake()[0]),
            CreateTopicsRequest(topics=[topic], timeout_ms=int(CREATE_TIMEOUT_S * 1000)),
            CREATE_TOPICS_VERSION,
            CreateTopicsResponse,
            CREATE_TIMEOUT_S,
        )
        (result,) = answer.topics
        if result.error_code != ErrorCode.NONE:
            code = ErrorCode(result.error_code).name
            raise TopicRefused(f"{name}: {code}: {result.error_message}")
        self.wait_until_led(name)

    def _awake(self) -> list[int]:
        return sorted(self._running - self._paused)

    def _view(self) -> View:
        sights = {}
        for number in self._awake():
            try:
                sights[number] = _look(number, self.address(number))
            except OSError:
                continue
        controller = View(sights).controller
        if controller is None or controller not in sights:
            return View(sights)
        voters = _voters(self.address(controller))
        return View({n: replace(sight, voters=voters) for n, sight in sights.items()})


def _look(number: int, address: str) -> Sight:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = wire_call(address, request, METADATA_VERSION, MetadataResponse, ASK_TIMEOUT_S)
    topics = {
        topic.name or "": tuple(
            PartitionSeen(
                replicas=tuple(row.replica_nodes),
                epoch=row.leader_epoch,
                # Of those who name the same leader, the leader itself knows best who is in sync.
                revision=int(row.leader_id == number),
                leader=None if row.leader_id < 0 else row.leader_id,
                in_sync=tuple(row.isr_nodes),
            )
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        )
        for topic in answer.topics
    }
    return Sight(
        controller=None if answer.controller_id < 0 else answer.controller_id,
        term=0,
        voters=frozenset(),
        up=frozenset(broker.node_id for broker in answer.brokers),
        topics=topics,
    )


def _voters(address: str) -> frozenset[int]:
    """None if that broker is not the controller after all."""
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    try:
        answer = wire_call(
            address, request, DESCRIBE_QUORUM_VERSION, DescribeQuorumResponse, ASK_TIMEOUT_S
        )
    except OSError:
        return frozenset()
    return frozenset(
        voter.replica_id
        for topic in answer.topics
        for partition in topic.partitions
        for voter in partition.current_voters
    )
