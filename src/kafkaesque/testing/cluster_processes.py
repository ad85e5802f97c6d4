"""The brokers of one cluster, a process each: for kill -9, SIGSTOP and the like.

    with ClusterProcesses(3, tmp_path) as cluster:
        cluster.kill(cluster.leader_of("orders"))
        cluster.restart(0, 1, 2)

`cluster.py` runs the brokers in threads: faster, and enough where no real process is needed.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkaesque.model.errors import ErrorCode
from kafkaesque.service.child_process import READY_SECONDS_MAX
from kafkaesque.testing.broker import PlainValue
from kafkaesque.testing.broker_process import BrokerNotReady, BrokerProcess
from kafkaesque.testing.cluster_layout import Layout, cluster_settings
from kafkaesque.testing.cluster_view import (
    BrokerReport,
    ClusterReport,
    ObservedCluster,
    PartitionReport,
)
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

QUERY_TIMEOUT_S = 2.0
CREATE_TIMEOUT_S = 30.0
METADATA_VERSION = 12
DESCRIBE_QUORUM_VERSION = 1
CREATE_TOPICS_VERSION = 7
CONTROLLER_LOG = "__cluster_metadata"
"""Kafka's name for the log of the controller quorum."""


class TopicRefused(Exception):
    """The cluster refused to create a topic."""


class BrokerProcesses(ObservedCluster):
    """The brokers of `layout`, a process each. None runs until `start` or `restart`.

    The processes end with this one, however it ends. `environment` gives variables by broker, `options`
    are added to every broker's command line.
    """

    def __init__(
        self,
        layout: Layout,
        environment: Callable[[int], Mapping[str, str]] | None = None,
        *,
        options: Sequence[str] = (),
        ready_seconds_max: float = READY_SECONDS_MAX,
    ) -> None:
        self._layout = layout
        self._processes = [
            BrokerProcess(
                layout.data(number),
                listen=layout.address(number),
                environment=None if environment is None else environment(number),
                options=options,
                ready_seconds_max=ready_seconds_max,
            )
            for number in range(layout.count)
        ]
        self._running: set[int] = set()
        self._paused: set[int] = set()

    # -- life of the cluster ----------------------------------------------------------------------

    def start(self) -> Self:
        """Start all brokers; returns when every one serves and votes."""
        try:
            self.restart(*range(self._layout.count))
            self.wait_until_joined()
        except BaseException:
            # Ctrl-C too: no process outlives the error.
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill every running broker and release the ports. The data stays."""
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

    def launch(self, *numbers: int) -> None:
        """Start brokers without waiting for them. They must not be running."""
        # The settings of all first: the first broker to start founds the cluster.
        all_settings = {number: self._layout.settings(number) for number in numbers}
        for number, settings in all_settings.items():
            # `kafkaesque broker` has options of its own for these two.
            del settings["log.dirs"], settings["listeners"]
            self._processes[number].settings = {**setting_texts(settings)}
            with self._network_of(number):
                self._processes[number].launch()
            self._running.add(number)

    def wait_ready(self, *numbers: int) -> None:
        """Wait until launched brokers serve. A broker that does not raises BrokerNotReady."""
        for number in numbers:
            try:
                self._processes[number].wait_ready()
            except BrokerNotReady:
                self._forget(number)
                raise

    def _network_of(self, number: int) -> AbstractContextManager[None]:
        """Entered while the process of a broker is started."""
        return nullcontext()

    def kill(self, *numbers: int) -> None:
        """kill -9, all at once."""
        ended = self._running.intersection(numbers)
        for number in ended:
            self._processes[number].signal(signal.SIGKILL)
        for number in ended:
            self._processes[number].kill()
            self._forget(number)

    def terminate(self, number: int) -> int:
        """SIGTERM; returns the exit code, 0 if the broker was not running."""
        self.resume(number)
        code = self._processes[number].stop()
        self._forget(number)
        return code

    def stop(self, *numbers: int) -> None:
        """Stop brokers cleanly, one after the other. A non-zero exit code raises BrokerNotReady."""
        for number in numbers:
            code = self.terminate(number)
            if code != 0:
                log = self._processes[number].log.read_text()[-4000:]
                raise BrokerNotReady(f"broker {number} ended with exit code {code}:\n{log}")

    def restart(self, *numbers: int) -> None:
        """Start brokers, running ones after a clean stop, and wait until they serve.

        A broker serves only with a majority of the cluster: pass all that are needed at once.
        """
        self.stop(*numbers)
        self.launch(*numbers)
        self.wait_ready(*numbers)

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
        """Undo what was done to brokers and wait until all replicas are in sync again."""
        for number in tuple(self._paused):
            self.resume(number)
        self.restart(*set(range(self._layout.count)) - self._running)
        self.wait_until_joined()
        self.wait_until_in_sync()

    def _forget(self, number: int) -> None:
        self._running.discard(number)
        self._paused.discard(number)

    # -- facts ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, for the client setting of the same name."""
        return self._layout.bootstrap_servers

    def address(self, number: int) -> str:
        """HOST:PORT of one broker, whether it runs or not."""
        return self._layout.address(number)

    def process(self, number: int) -> BrokerProcess:
        """One broker's process, with its log, data and pid."""
        return self._processes[number]

    @property
    def running(self) -> list[int]:
        return sorted(self._running)

    @property
    def awake(self) -> list[int]:
        """The brokers that run and are not paused."""
        return sorted(self._running - self._paused)

    # -- observing --------------------------------------------------------------------------------

    def _view(self) -> ClusterReport:
        views = {}
        for number in self.awake:
            try:
                views[number] = _query(number, self.address(number))
            except OSError:
                continue
        controller = ClusterReport(views).controller
        if controller is None or controller not in views:
            return ClusterReport(views)
        voters = _voters(self.address(controller))
        return ClusterReport({n: replace(view, voters=voters) for n, view in views.items()})

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        replicas: Mapping[int, list[int]] | None = None,
        **configs: PlainValue,
    ) -> None:
        """Create a topic and wait until every partition has a leader.

        `replicas` gives the brokers of each partition; `configs` are Kafka's topic settings, with
        underscores for dots.
        """
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
            self.address(self.awake[0]),
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


class ClusterProcesses(BrokerProcesses):
    """`count` brokers with node ids 0, 1, ... and test settings; their data stays in `directory`."""

    def __init__(
        self,
        count: int,
        directory: Path,
        *,
        settings: Mapping[str, PlainValue] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            Layout(directory, count, cluster_settings(count, settings)),
            None if environment is None else lambda _: environment,
        )


def _query(number: int, address: str) -> BrokerReport:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = wire_call(address, request, METADATA_VERSION, MetadataResponse, QUERY_TIMEOUT_S)
    topics = {
        topic.name or "": tuple(
            PartitionReport(
                replicas=tuple(row.replica_nodes),
                epoch=row.leader_epoch,
                # Among brokers that name the same leader, the leader has the newest ISR.
                revision=int(row.leader_id == number),
                leader=None if row.leader_id < 0 else row.leader_id,
                in_sync=tuple(row.isr_nodes),
            )
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        )
        for topic in answer.topics
    }
    return BrokerReport(
        controller=None if answer.controller_id < 0 else answer.controller_id,
        term=0,
        voters=frozenset(),
        up=frozenset(broker.node_id for broker in answer.brokers),
        topics=topics,
    )


def _voters(address: str) -> frozenset[int]:
    """The voters of the controller quorum; empty if that broker is not the controller."""
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    try:
        answer = wire_call(
            address, request, DESCRIBE_QUORUM_VERSION, DescribeQuorumResponse, QUERY_TIMEOUT_S
        )
    except OSError:
        return frozenset()
    return frozenset(
        voter.replica_id
        for topic in answer.topics
        for partition in topic.partitions
        for voter in partition.current_voters
    )
