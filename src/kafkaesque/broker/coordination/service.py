"""A broker's part in coordination: its replica of the tree, and the server if it has a listener.

Every broker has the replica, so that any of them can serve, and any majority can go on.
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
from kafkaesque.broker.replication.replica_set import CONTROLLER_CONFIG, ReplicaSet
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
"""Small segments: what a snapshot of the tree stands for goes by the segment."""
TREE_LIMITS: Final = TreeLimits(nodes_max=100_000, size_bytes_max=32 * MIB)
"""So that a snapshot always fits into one frame between brokers."""
EXPIRY_SLACK_S: Final = 0.5
"""How long it may take until the leader hears of a session that is heard elsewhere."""


class CoordinationService:
    """Made by `open`. `take_part`, then `serve`; `stop`, then `close`."""

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
    ) -> None:
        self.group = group
        self.coordinator = coordinator
        self.server: CoordinationServer | None = None
        """None without a listener, unless this broker leads: somebody has to end sessions."""
        self._replicas = replicas
        self._config = config
        self._fail = fail
        self._clock = clock
        self._registries: ClusterRegistries | None = None

    @classmethod
    def open(
        cls,
        data: Path,
        files: OpenFiles,
        replicas: ReplicaSet,
        clock: Clock,
        fail: Callable[[BaseException], None],
        *,
        first_members: tuple[MemberId, ...],
        is_clean: bool,
        config: CoordinationConfig | None = None,
    ) -> CoordinationService:
        """The replica as it is on disk; a new one begins with `first_members`. Blocking."""
        path = data / DIRECTORY
        log = Log.open(path, LOG_CONFIG, files, clean=is_clean)
        replicas.attach(COORDINATION_GROUP, log)
        machine = Machine(TREE_LIMITS, has_registries=True)
        coordinator = Coordinator(machine, clock, EXPIRY_SLACK_S)
        states = StateFile(path, replicas.journal, name=STATE_NAME)
        group = RaftGroup(states, fail, replicas, clock, coordinator)
        group.replica = open_replica(
            COORDINATION_GROUP,
            log,
            first_members,
            replicas,
            group,
            CONTROLLER_CONFIG,
            is_clean=is_clean,
        )
        group.load()
        return cls(group, coordinator, replicas, clock, config or CoordinationConfig(), fail)

    def take_part(self, cluster: Cluster) -> None:
        """From here on messages and elections happen."""
        self.group.links = cluster.links
        self._registries = ClusterRegistries(self.coordinator, cluster, self._clock)
        self._replicas.add(self.group.replica)
        if self.group.replica.is_alone:
            self.group.replica.campaign()

    async def serve(self, host: str, port: int) -> tuple[str, int]:
        """Accept clients, if need be after a while: at first no leader may be known. The address."""
        with suppress(NotCommitted):
            await self.group.read_barrier()
        server = self._new_server()
        await server.start(host, port)
        self.server = server
        return server.address

    def _new_server(self) -> CoordinationServer:
        # Imported when there is something to do: a broker without a listener starts faster.
        from kafkaesque.broker.coordination.server import CoordinationServer

        server = CoordinationServer(
            self.coordinator, self.group, self._clock, self._config, self._fail
        )
        if self._registries is not None:
            server.registries = self._registries
        return server

    async def advance(self) -> None:
        """Now and then: snapshots; and sessions of clients that others serve."""
        if self.server is None and self.group.leads and self.coordinator.machine.sessions:
            self.server = self._new_server()
            self.server.start_clockwork()
        await self.group.save_if_grown()

    def abort(self) -> None:
        """Nobody hears of this server any more; `stop` is still due."""
        if self.server is not None:
            self.server.abort()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
        await self.group.stop()

    def close(self) -> bool:
        """True if the log is closed cleanly. Blocking."""
        return self.group.close()

    # -- what other brokers ask ------------------------------------------------------------------

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        if kind == GROUPS and self._registries is not None:
            return self._registries.call(kind)
        return self.group.call(kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self.group.post(kind, body)
