"""The cluster as this broker sees it: its tables, its controller, its peers.

Requests to the controller go out and are answered here; `rules.controller` decides them. The
`reconciler` makes this node's partitions match the committed tables, `leaders` records which broker
leads which group, `members` changes the membership of the groups that this node leads.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar, cast
from uuid import UUID

from kafkaesque.broker.cluster.controller_log import ControllerLog
from kafkaesque.broker.cluster.elections import Elections
from kafkaesque.broker.cluster.leaders import Leaders
from kafkaesque.broker.cluster.members import Members
from kafkaesque.broker.cluster.reconciler import ReconciledIndex, Reconciler
from kafkaesque.broker.cluster.rules import broker_requests
from kafkaesque.broker.cluster.rules.controller import Controller, Decision, NewTopic
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.cluster.rules.errors import ControllerMoved, InconsistentClusterId
from kafkaesque.broker.cluster.rules.leader_table import Announcement
from kafkaesque.broker.cluster.rules.quorum_info import QuorumInfo, quorum_info
from kafkaesque.broker.cluster.rules.topology import RegisteredBroker, Topic
from kafkaesque.broker.cluster.scrubber import Scrubber
from kafkaesque.broker.partitions.coordinators import Coordinators
from kafkaesque.broker.partitions.environment import Changes
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.raft.types import LogIndex, Refused
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.links import IntroductionRefused, Links
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.prefix_copies import PrefixCopies
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.peer_hello import HelloRefusal
from kafkaesque.broker.replication.succession import CallLater
from kafkaesque.model.errors import KafkaError, NotController, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId, ProducerId, TimestampMs, node_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS = 10.0
CONTROLLER_SECONDS = 10.0
"""How long a request waits for a controller to be elected."""
RETRY_SECONDS = 0.05
WARN_EVERY_TRIES = 100
ELECTION_SECONDS = 3.0
"""How long the response to a request that created topics waits for their leaders. Without the wait,
clients would have to refresh their metadata again at once."""
SEED_SECONDS = 0.5
"""How long a start waits for a seed's cluster id. A seed that takes longer is treated as down."""

BROKER_REQUEST, FORWARD, HAND_OVER, BATCH, PREFIX = 1, 2, 3, 4, 5
"""Kinds of calls between brokers."""
FORWARD_KINDS = range(FORWARD, FORWARD + 1)
LEADERS = 1
"""Kind of post: announcements of leaders."""

_index = struct.Struct(">Q")

ServeRequest = Callable[[bytes], Awaitable[bytes]]
"""Serves a client's request frame that another broker forwarded; returns the response frame."""


class ForwardedRequests:
    """Serves client requests that other brokers forwarded to the controller (FORWARD_KINDS).

    Implements `peer_inbox.PeerService`.
    """

    __slots__ = ("_controller_log", "_serve_request")

    def __init__(self, controller_log: ControllerLog, serve_request: ServeRequest) -> None:
        self._controller_log = controller_log
        self._serve_request = serve_request

    async def call(self, node: NodeId, kind: int, body: bytes) -> bytes:
        """Returns the index to wait for, then the response frame."""
        if not self._controller_log.is_leader:
            raise NotController("this broker is not the controller")
        response = await self._serve_request(body)
        return _index.pack(self._controller_log.applied_index) + response

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        raise ProtocolError(f"post of unknown kind {kind}")


class ClusterInbox(Protocol):
    """What the links deliver to the cluster; Raft's messages go to the replica set instead."""

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]: ...

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...

    def reachable(self, node: NodeId) -> None: ...

    def unreachable(self, node: NodeId) -> None: ...


class Cluster:
    """One broker's view of its cluster. Implements `ClusterInbox`.

    Call `start`, then `stop`.
    """

    __slots__ = (
        "_interim_addresses",
        "_leadership_changes",
        "_producer_ids",
        "_reconciled",
        "_replicas",
        "_tasks",
        "controller",
        "controller_log",
        "elections",
        "groups",
        "leaders",
        "links",
        "members",
        "node_id",
        "partitions",
        "prefixes",
        "reconciler",
        "scrubber",
        "settings",
        "tables",
    )

    def __init__(
        self,
        controller_log: ControllerLog,
        partitions: PartitionTable,
        groups: GroupCoordinator,
        replicas: ReplicaSet,
        leadership_changes: Changes[Partition],
        settings: DynamicConfig,
        new_topic_id: Callable[[], UUID],
        call_later: CallLater,
        links: Links,
    ) -> None:
        self.node_id = node_of(replicas.member)
        self.controller_log = controller_log
        self.tables = controller_log.tables
        self.settings = settings
        self.partitions = partitions
        self.groups = groups
        self._replicas = replicas
        self._leadership_changes = leadership_changes
        self._producer_ids = range(0)
        self._reconciled = ReconciledIndex()
        self._tasks: list[asyncio.Task[None]] = []
        self._interim_addresses: list[tuple[int, str, int]] = []
        """Peers from our own log, from seeds, then from the controller's reply to our registration.
        Used until the tables contain every broker."""
        self.links = links
        self.controller = Controller(self.tables, settings, self.live_nodes, new_topic_id)
        self.reconciler = Reconciler(replicas.member, self.tables, partitions, groups, settings)
        self.leaders = Leaders(self.node_id, self.tables.was_deleted, self._post_leaders)
        self.elections = Elections(
            self.tables, self.leaders, replicas, self.is_up, self._call_hand_over, call_later
        )
        self.scrubber = Scrubber(replicas, self._caller(BATCH))
        self.prefixes = PrefixCopies(replicas, self._caller(PREFIX))
        self.members = Members(replicas, self.tables, self.is_up, self._complete_reassignment)

    # -- state --------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> NodeId | None:
        leader = self.controller_log.replica.leadership.leader_id
        return None if leader is None else node_of(leader)

    def is_up(self, node_id: NodeId) -> bool:
        return node_id == self.node_id or self.links.is_up(node_id)

    def live_nodes(self) -> list[NodeId]:
        return [node_id for node_id in self.tables.brokers if self.is_up(node_id)]

    def live_brokers(self) -> list[RegisteredBroker]:
        """The brokers to name to clients.

        A broker that reaches no majority is partitioned away or the first one up after an outage. It
        names all registered brokers: clients drop brokers that are missing from a response, and
        would then have nowhere else to go.
        """
        registered = list(self.tables.brokers.values())
        live = [broker for broker in registered if self.is_up(broker.node_id)]
        return live if 2 * len(live) > len(registered) else registered

    def named_brokers(self) -> list[RegisteredBroker]:
        """The live brokers and those that were lost recently: see `RecentlyLost`."""
        live, lost = self.live_brokers(), self.elections.recently_lost
        return [one for one in self.tables.brokers.values() if one in live or one.node_id in lost]

    def leader_of(self, topic: str, index: int) -> RegisteredBroker | None:
        """The broker that leads a partition, if it is known and up."""
        announced = self.announced(self.tables.by_name.get(topic), index)
        return None if announced is None else self.tables.brokers.get(announced.node_id)

    def announced(self, topic: Topic | None, index: int) -> Announcement | None:
        """A partition's leader and leader epoch, if they are known and the broker is up."""
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        found = self.leaders.get(topic.partitions[index].group_id)
        return found if found is not None and self.is_up(found.node_id) else None

    # -- requests to the controller -----------------------------------------------------------------

    async def submit(self, operation: Callable[[Controller], Decision[T]]) -> T:
        """Commits the commands that `operation` returns and waits until this node matches them.

        Only on the controller: raises ControllerMoved elsewhere.
        """
        answer, index = await self.controller_log.submit(lambda: operation(self.controller))
        await self._wait_reconciled(index)
        return answer

    async def request(self, request: broker_requests.BrokerRequest, answer: type[T]) -> T:
        """Has the controller, wherever it is, carry out `request`; waits until this node matches."""
        reply = await self._call_controller(BROKER_REQUEST, broker_requests.encode_request(request))
        value, index = broker_requests.decode_reply(reply, answer)
        await self._wait_reconciled(index)
        return value

    async def forward(self, request: bytes) -> bytes:
        """Has the controller serve a client's request; waits until this node matches."""
        reply = await self._call_controller(FORWARD, request)
        await self._wait_reconciled(LogIndex(_index.unpack_from(reply)[0]))
        return reply[_index.size :]

    async def _wait_reconciled(self, index: LogIndex) -> None:
        """A client whose next request goes to this node must see the change. A node whose disk is full cannot
        follow the log, so it does not wait."""
        replica = self.controller_log.replica
        await self._reconciled.wait_for_unless(index, lambda: replica.is_without_room)

    async def _call_controller(self, kind: int, body: bytes) -> bytes:
        """Retries while nothing was started; raises NotController after CONTROLLER_SECONDS."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONTROLLER_SECONDS
        while True:
            try:
                return await self._call_controller_once(kind, body)
            except (NotController, PeerError) as error:
                if loop.time() > deadline:
                    raise NotController(f"no controller answers: {error}") from error
            await self.controller_log.wait_for_leader_change(RETRY_SECONDS)

    async def _call_controller_once(self, kind: int, body: bytes) -> bytes:
        node_id = self.controller_id
        if self.controller_log.is_leader or node_id == self.node_id:
            answer = self.links.inbox.call(self.node_id, kind, body)
            return answer if isinstance(answer, bytes) else await answer
        if node_id is None:
            raise NotController("no controller is elected")
        return await self.links.call(node_id, kind, body, CALL_SECONDS)

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, KafkaError]:
        """Creates the topics that do not exist yet. Returns the errors by topic."""
        request = broker_requests.EnsureTopics(tuple(wanted))
        errors = await self.request(request, dict[str, tuple[int, str]])
        await self.wait_elected(topic.name for topic in wanted)
        return {name: broker_requests.ControllerError(*error) for name, error in errors.items()}

    async def wait_elected(self, names: Iterable[str]) -> None:
        """Waits up to ELECTION_SECONDS until the partitions of new topics have leaders."""
        topics = [topic for name in names if (topic := self.tables.by_name.get(name)) is not None]
        groups = [partition.group_id for topic in topics for partition in topic.partitions]
        await self.leaders.wait_elected(groups, ELECTION_SECONDS)

    async def wait_settled(self) -> None:
        """Waits up to ELECTION_SECONDS until the groups on this node that can elect a leader have."""

        def can_elect(replica: Replica) -> bool:
            voters = replica.membership.voters
            return 2 * sum(self.is_up(node_of(voter)) for voter in voters) > len(voters)

        replicas = (partition.replica for partition in self.partitions)
        groups = [replica.group for replica in replicas if can_elect(replica)]
        await self.leaders.wait_elected(groups, ELECTION_SECONDS)

    async def next_producer_id(self) -> ProducerId:
        """Returns an id that no producer of this cluster ever had."""
        while not self._producer_ids:
            request = broker_requests.AllocateProducerIds()
            first, end = await self.request(request, tuple[int, int])
            # Another call may have allocated a block meanwhile: keep that one.
            if not self._producer_ids:
                self._producer_ids = range(first, end)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(first)

    async def _call_hand_over(self, node: NodeId, body: bytes) -> bytes:
        if node == self.node_id:
            return self.elections.hand_over(body)
        return await self.links.call(node, HAND_OVER, body, CALL_SECONDS)

    def _caller(self, kind: int) -> Callable[[NodeId, bytes], Awaitable[bytes]]:
        return lambda node, body: self.links.call(node, kind, body, CALL_SECONDS)

    def describe_quorum(self) -> QuorumInfo:
        """The controller's Raft group as its leader sees it. Raises NotController on other nodes."""
        status = self.controller_log.replica.status()
        return quorum_info(status, self.tables, TimestampMs(self._replicas.now_ms()))

    # -- following the controller log ---------------------------------------------------------------

    def start(
        self, coordinators: Coordinators, ended: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """Starts to follow the controller log and the changes of leadership, and notifies the
        `coordinators` of the latter. `ended` is called with a task that ends; none ends unless it
        fails or is cancelled."""
        loop = asyncio.get_running_loop()
        for work in (self._follow_controller_log(), self._follow_leadership(coordinators)):
            task = loop.create_task(work)
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def _follow_controller_log(self) -> None:
        """Reconciles everything once, then change by change."""
        await self.controller_log.changes.get()
        while not self.controller_log.changes.empty():
            self.controller_log.changes.get_nowait()
        index = self.controller_log.applied_index
        self.partitions.remove_leftovers(self.tables.deleted_ids, self.tables.by_id)
        await self.reconciler.reconcile_all()
        while True:
            self.connect_peers()
            self._reconciled.advance(index)
            change = await self.controller_log.changes.get()
            await self.reconciler.reconcile(change)
            if change.deletes_topics:
                self.leaders.forget_deleted()
            index = change.index

    async def register(
        self, request: broker_requests.BrokerRegistration, seeds: Sequence[PeerAddress]
    ) -> None:
        """Registers this broker's address with the controller. Retries until it succeeds: without a
        majority of the brokers this one can do nothing."""
        await refuse_other_cluster(self.links, seeds)
        body = broker_requests.encode_request(request)
        self._interim_addresses = self.controller_log.addresses()
        self.connect_peers()
        tries = 0
        while True:
            try:
                if tries % 2 and seeds:
                    # The known addresses may be stale: all brokers may have moved at once.
                    reply = await self._call_seed(seeds[tries // 2 % len(seeds)], body)
                else:
                    reply = await self._call_controller_once(BROKER_REQUEST, body)
                registered, index = broker_requests.decode_reply(reply, broker_requests.Registered)
                self._interim_addresses = registered.brokers
                self.connect_peers()
                await self._reconciled.wait_for(index)
                self._interim_addresses = []
                self.connect_peers()
                return
            except (NotController, PeerError, OSError) as error:
                tries += 1
                if tries % WARN_EVERY_TRIES == 0:
                    logger.warning("waiting for a controller to register with: %s", error)
            await self.controller_log.wait_for_leader_change(RETRY_SECONDS)

    async def _call_seed(self, address: PeerAddress, body: bytes) -> bytes:
        """Any broker passes a registration on to the controller."""
        seed = await self.links.introduce(address)
        others = [one for one in self._interim_addresses if one[0] != seed.node_id]
        self._interim_addresses = [*others, (int(seed.node_id), *address)]
        self.connect_peers()
        return await self.links.call(seed.node_id, BROKER_REQUEST, body, CALL_SECONDS)

    def connect_peers(self) -> None:
        """Keeps a link to every other broker. The tables list them all, but a broker that has just
        joined or come back receives the tables over one of these links."""
        peers = {
            broker.node_id: PeerAddress(broker.host, broker.port)
            for broker in self.tables.brokers.values()
        }
        for node, host, port in self._interim_addresses:
            peers[NodeId(node)] = PeerAddress(host, port)
        peers.pop(self.node_id, None)
        self.links.set_peers(peers)

    async def _follow_leadership(self, coordinators: Coordinators) -> None:
        while True:
            for partition in await self._leadership_changes.take():
                if partition.failure is not None:
                    self.partitions.reopen_later(partition)
                coordinators.leadership_changed(partition)
                self.leaders.announce([partition.replica], self._peers())

    async def advance(self) -> None:
        """Periodic work: membership, in-sync replicas, repairs, snapshots."""
        await self.members.advance()
        self.leaders.announce(self._replicas, self._peers())
        await self.scrubber.check_damaged()
        await self.controller_log.save_if_grown()

    async def _complete_reassignment(self, group: GroupId, target: tuple[NodeId, ...]) -> None:
        try:
            await self.request(broker_requests.FinishReassignment(group, target), type(None))
        except KafkaError as error:
            logger.info("reassignment of group %d not recorded yet, will retry: %s", group, error)

    # -- stopping ------------------------------------------------------------------------------------

    async def drain(self, timeout_seconds: float) -> None:
        """Transfers the leadership of every group that this node leads and another can take."""
        loop = asyncio.get_running_loop()
        deadline, tries = loop.time() + timeout_seconds, 0
        while loop.time() < deadline:
            led = [replica for replica in self._replicas if _could_hand_over(replica)]
            if not led:
                return
            for replica in led:
                others = [node for node in replica.in_sync() if node != self._replicas.member]
                if others and not replica.raft.is_transferring:
                    try:
                        replica.transfer_leadership(others[(replica.group + tries) % len(others)])
                    except Refused:
                        continue
            tries += 1  # a member that did not take over may have a full disk: try the next
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()

    # -- ClusterInbox: what peers send to the cluster ------------------------------------------------

    def reachable(self, node: NodeId) -> None:
        self._replicas.reachable(node)
        self.leaders.send_all(node)

    def unreachable(self, node: NodeId) -> None:
        self._replicas.unreachable(node)
        self.elections.lost(node)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        if kind == LEADERS:
            self.leaders.receive(body)

    async def call(self, node: NodeId, kind: int, body: bytes) -> bytes:
        if kind == BROKER_REQUEST:
            return await self._serve_broker(broker_requests.decode_request(body))
        if kind == HAND_OVER:
            return self.elections.hand_over(body)
        if kind in (BATCH, PREFIX):
            return (self.scrubber if kind == BATCH else self.prefixes).serve(body)
        raise ProtocolError(f"call of unknown kind {kind}")

    async def _serve_broker(self, request: broker_requests.BrokerRequest) -> bytes:
        if not self.controller_log.is_leader:
            # A broker that joins sends its registration to any broker that it can reach.
            controller = self.controller_id
            if controller is None or controller == self.node_id:
                raise NotController("no controller is elected")
            body = broker_requests.encode_request(request)
            try:
                return await self.links.call(controller, BROKER_REQUEST, body, CALL_SECONDS)
            except PeerError as error:
                raise NotController(f"broker {controller} does not answer: {error}") from error
        try:
            answer, index = await self.controller_log.submit(
                lambda: cast(Decision[object], request.decide(self.controller))
            )
        except ControllerMoved as moved:
            raise NotController(str(moved)) from None
        except NotController:
            raise
        except KafkaError as error:
            return broker_requests.encode_error(error)
        return broker_requests.encode_answer(answer, index)

    def _peers(self) -> list[NodeId]:
        return [node for node in self.live_nodes() if node != self.node_id]

    def _post_leaders(self, node: NodeId, body: bytes) -> None:
        self.links.post(node, LEADERS, body)


def _could_hand_over(replica: Replica) -> bool:
    return replica.is_leader and len(replica.in_sync()) > 1


async def refuse_other_cluster(links: Links, seeds: Sequence[PeerAddress]) -> None:
    """Raises InconsistentClusterId if a seed belongs to another cluster than our data. With the wrong
    directory or the wrong address, this broker would silently run as a cluster of its own."""
    await asyncio.gather(*(_check_seed(links, seed) for seed in seeds))


async def _check_seed(links: Links, seed: PeerAddress) -> None:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SEED_SECONDS):
                await links.introduce(seed)
    except IntroductionRefused as refused:
        if refused.answer.refusal is HelloRefusal.WRONG_CLUSTER:
            raise InconsistentClusterId(
                f"the data directory belongs to cluster {links.me.cluster_id}, but {seed.host}:"
                f"{seed.port} belongs to cluster {refused.answer.answerer.cluster_id}. Use that "
                "cluster's data directory, an empty one to join it, or another address."
            ) from None
    except OSError:
        return
