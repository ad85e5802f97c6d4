"""Coordination on one broker: its replica of the tree, and the server if it has a listener.

Every broker has a replica, so that any of them can serve and any majority can continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.cluster.replicated_machine import StateFile
from kafkaesque.broker.coordination.cluster_registries import ClusterRegistries
from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.group_survey import GROUPS
from kafkaesque.broker.coordination.raft_group import RaftGroup
from kafkaesque.broker.coordination.replicated import NotCommitted
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.tree import TreeLimits
from kafkaesque.broker.replication.opening import open_replica
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import CONTROLLER_CONFIG, ReplicaSet
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import COORDINATION_GROUP, MemberId, NodeId
from kafkaesque.model.limits import MIB

if TYPE_CHECKING:
    from kafkaesque.broker.coordination.server import CoordinationServer

DIRECTORY: Final = "coordination"
STATE_NAME: Final = "tree.state"
LOG_CONFIG: Final = LogConfig(segment_bytes=8 * MIB)
"""Small segments: the log that a snapshot replaces is deleted by the segment."""
TREE_LIMITS: Final = TreeLimits(nodes_max=100_000, size_bytes_max=32 * MIB)
"""So that a snapshot always fits into one frame between brokers."""
EXPIRY_SLACK_S: Final = 0.5
"""How long it may take until the report of a session that was touched on another broker reaches the leader."""


class CoordinationService:
    """Created by `open`. `take_part`, then `serve`; `stop`, then `close`."""

    __slots__ = (
        "_clock",
        "_config",
        "_fail",
        "_registries",
        "_replicas",
        "coordinator",
        "group",
        "server",
    )

    def __init__(
        self,
        group: RaftGroup,
        coordinator: Coordinator,
        replicas: ReplicaSet,
        clock: Clock,
        config: CoordinationConfig,
        fail: Callable[[BaseException], None],
        registries: ClusterRegistries,
    ) -> None:
        self.group = group
        self.coordinator = coordinator
        self.server: CoordinationServer | None = None
        """None without a listener, unless this broker leads: the leader expires sessions."""
        self._replicas = replicas
        self._config = config
        self._fail = fail
        self._clock = clock
        self._registries = registries

    @classmethod
    def open(
        cls,
        data: Path,
        files: OpenFiles,
        replicas: ReplicaSet,
        cluster: Cluster,
        clock: Clock,
        fail: Callable[[BaseException], None],
        *,
        first_members: tuple[MemberId, ...],
        is_clean: bool,
        config: CoordinationConfig | None = None,
    ) -> CoordinationService:
        """Opens the replica on disk; a new one starts with `first_members`. Blocking."""
        path = data / DIRECTORY
        log = Log.open(path, LOG_CONFIG, files, clean=is_clean)
        replicas.attach(COORDINATION_GROUP, log)
        machine = Machine(TREE_LIMITS, has_registries=True)
        coordinator = Coordinator(machine, clock, EXPIRY_SLACK_S)
        states = StateFile(path, name=STATE_NAME)

        def new_replica(machine: StateMachine) -> Replica:
            return open_replica(
                COORDINATION_GROUP,
                log,
                first_members,
                replicas,
                machine,
                CONTROLLER_CONFIG,
                is_clean=is_clean,
            )

        group = RaftGroup(states, fail, replicas, clock, coordinator, cluster.links, new_replica)
        return cls(
            group,
            coordinator,
            replicas,
            clock,
            config or CoordinationConfig(),
            fail,
            ClusterRegistries(coordinator, cluster, clock),
        )

    def take_part(self) -> None:
        """Joins the Raft group: messages and elections begin."""
        self._replicas.add(self.group.replica)
        if self.group.replica.is_alone:
            self.group.replica.campaign()

    async def serve(self, host: str, port: int) -> tuple[str, int]:
        """Accepts clients, once a leader is known or after a while. Returns the address."""
        with suppress(NotCommitted):
            await self.group.read_barrier()
        server = self._new_server()
        await server.start(host, port)
        self.server = server
        return server.address

    def _new_server(self) -> CoordinationServer:
        # Imported when needed: a broker without a listener starts faster.
        from kafkaesque.broker.coordination.server import CoordinationServer

        return CoordinationServer(
            self.coordinator, self.group, self._clock, self._config, self._fail, self._registries
        )

    async def advance(self) -> None:
        """Periodic work: snapshots, and the expiry of sessions that other brokers serve."""
        if self.server is None and self.group.is_leader and self.coordinator.machine.sessions:
            self.server = self._new_server()
            self.server.start_timer()
        await self.group.save_if_grown()

    def abort(self) -> None:
        """Drops all connections at once; `stop` is still due."""
        if self.server is not None:
            self.server.abort()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
        await self.group.stop()

    def close(self) -> bool:
        """Closes the log; True if that was clean. Blocking."""
        return self.group.close()

    # -- peer_inbox.PeerService ------------------------------------------------------------------

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        if kind == GROUPS:
            return self._registries.call(kind)
        return self.group.call(kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self.group.post(kind, body)
