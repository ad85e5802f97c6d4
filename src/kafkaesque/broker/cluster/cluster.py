"""The cluster as this broker sees it: its tables, its controller, its peers.

Everything that happens between brokers meets here: `controller` and `operations` decide,
`reconciler` makes the partitions of this node match, `leaders` tells who leads what, `members`
changes who belongs to a group. What peers send comes in by the methods of `Inbox`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast
from uuid import UUID

from kafkaesque.broker.cluster.elections import Elections
from kafkaesque.broker.cluster.journal import Journal
from kafkaesque.broker.cluster.leaders import Leaders
from kafkaesque.broker.cluster.members import Members
from kafkaesque.broker.cluster.reconciler import ReconciledIndex, Reconciler
from kafkaesque.broker.cluster.rules import operations
from kafkaesque.broker.cluster.rules.controller import Controller, Outcome
from kafkaesque.broker.cluster.rules.leader_table import Announcement
from kafkaesque.broker.cluster.rules.quorum_info import QuorumInfo, quorum_info
from kafkaesque.broker.cluster.rules.refusals import ControllerMoved
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.cluster.rules.topology import Broker, Topic
from kafkaesque.broker.cluster.scrubber import Scrubber
from kafkaesque.broker.cluster.seeds import refuse_other_cluster
from kafkaesque.broker.partitions.coordinators import Coordinators
from kafkaesque.broker.partitions.environment import Changes
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.types import LogIndex, Refused
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.prefix_copies import PrefixCopies
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.succession import CallLater
from kafkaesque.model.errors import KafkaError, NotController, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId, ProducerId, TimestampMs, TopicPartition, node_of
from kafkaesque.model.settings import BrokerConfig, TopicConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS = 10.0
CONTROLLER_SECONDS = 10.0
"""How long an operation waits for a controller to be elected."""
RETRY_SECONDS = 0.05
COMPLAIN_EVERY_TRIES = 100
ELECTION_SECONDS = 3.0
"""How long an answer that made topics waits for their leaders: clients would have to ask again."""

OPERATE, FORWARD, HAND_OVER, BATCH, PREFIX = 1, 2, 3, 4, 5
"""Kinds of calls between brokers."""
LEADERS = 1
"""Kind of post: announcements of leaders."""

_index = struct.Struct(">Q")

ServeRequest = Callable[[bytes], Awaitable[bytes]]
"""Runs a client's request that another broker forwarded; its response frame."""


class Cluster:
    """See the module's text. `start` after the journal's replica is there; then `stop`."""

    __slots__ = (
        "_elections",
        "_producer_ids",
        "_reconciled",
        "_replicas",
        "_standings",
        "_tasks",
        "_told_peers",
        "controller",
        "coordinators",
        "journal",
        "leaders",
        "links",
        "members",
        "partitions",
        "reconciler",
        "scrubber",
        "serve_request",
    )

    links: Links
    serve_request: ServeRequest
    """Both set by the composition root, before the first peer can be heard."""

    def __init__(
        self,
        journal: Journal,
        partitions: PartitionTable,
        groups: GroupCoordinator,
        replicas: ReplicaSet,
        standings: Changes[Partition],
        static: BrokerConfig,
        new_topic_id: Callable[[], UUID],
        call_later: CallLater,
    ) -> None:
        self.journal = journal
        self.partitions = partitions
        self.coordinators = Coordinators(groups)
        self._replicas = replicas
        self._standings = standings
        self._producer_ids = range(0)
        self._reconciled = ReconciledIndex()
        self._tasks: list[asyncio.Task[None]] = []
        self._told_peers: list[tuple[int, str, int]] = []
        """By our own log, by seeds, then by whoever registers us, until the tables tell it all."""
        self.controller = Controller(journal.tables, static, self.live_nodes, new_topic_id)
        self.reconciler = Reconciler(replicas.member, self.controller, partitions, groups, static)
        self.leaders = Leaders(self.node_id, journal.tables.was_deleted, self._post_leaders)
        self._elections = Elections(
            journal.tables, self.leaders, replicas, self.is_up, self._ask_to_hand_over, call_later
        )
        self.scrubber = Scrubber(replicas, self._asking(BATCH))
        replicas.prefixes = PrefixCopies(replicas, self._asking(PREFIX))
        self.members = Members(replicas, journal.tables, self.is_up, self._complete_reassignment)

    # -- what is so ---------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        return self.journal.tables

    @property
    def node_id(self) -> NodeId:
        return node_of(self._replicas.member)

    @property
    def config(self) -> BrokerConfig:
        return self.reconciler.config

    @property
    def static(self) -> BrokerConfig:
        return self.reconciler.static

    def topic_config(self, topic: Topic) -> TopicConfig:
        return self.reconciler.topic_config(topic)

    @property
    def leads(self) -> bool:
        """Whether this node is the controller."""
        return self.journal.leads

    @property
    def controller_id(self) -> NodeId | None:
        leader = self.journal.replica.standing.leader_id
        return None if leader is None else node_of(leader)

    def is_up(self, node_id: NodeId) -> bool:
        return node_id == self.node_id or self.links.is_up(node_id)

    def live_nodes(self) -> list[NodeId]:
        return [node_id for node_id in self.tables.brokers if self.is_up(node_id)]

    def live_brokers(self) -> list[Broker]:
        """For clients. A broker that hears no majority is cut off, or the first to be back, and
        tells of all there are: clients forget those that are missing here, and could not leave."""
        registered = list(self.tables.brokers.values())
        live = [broker for broker in registered if self.is_up(broker.node_id)]
        return live if 2 * len(live) > len(registered) else registered

    def named_brokers(self) -> list[Broker]:
        """Those, and those that were lost a moment ago: see `departures`."""
        live, lost = self.live_brokers(), self._elections.departures
        return [one for one in self.tables.brokers.values() if one in live or one.node_id in lost]

    def leader_of(self, topic: str, index: int) -> Broker | None:
        """The broker that leads a partition, if it is known and up."""
        told = self.announced(self.tables.by_name.get(topic), index)
        return None if told is None else self.tables.brokers.get(told.node_id)

    def announced(self, topic: Topic | None, index: int) -> Announcement | None:
        """Who leads a partition and since which epoch, if that is known and the broker is up."""
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        told = self.leaders.of(topic.partitions[index].group_id)
        return told if told is not None and self.is_up(told.node_id) else None

    # -- what is asked for --------------------------------------------------------------------------

    async def submit(self, operation: Callable[[Controller], Outcome[T]]) -> T:
        """Commit what `operation` decides and bring this node in line with it. Only on the
        controller: ControllerMoved elsewhere."""
        answer, index = await self.journal.submit(lambda: operation(self.controller))
        await self._holds_here(index)
        return answer

    async def operate(self, operation: operations.Operation, answer: type[T]) -> T:
        """Have the controller carry out `operation`, wherever it is; wait until it holds here."""
        reply = await self._ask_controller(OPERATE, operations.encode_operation(operation))
        value, index = operations.decode_reply(reply, answer)
        await self._holds_here(index)
        return value

    async def forward(self, request: bytes) -> bytes:
        """Have the controller answer a client's request; wait until what it did holds here."""
        reply = await self._ask_controller(FORWARD, request)
        await self._holds_here(LogIndex(_index.unpack_from(reply)[0]))
        return reply[_index.size :]

    async def _holds_here(self, index: LogIndex) -> None:
        """Whoever asks this node next is to see what was done. Not if its disk has no room for it."""
        replica = self.journal.replica
        await self._reconciled.wait_for_unless(index, lambda: replica.is_without_room)

    async def _ask_controller(self, kind: int, body: bytes) -> bytes:
        """Asked again as long as nothing was begun; NotController when the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONTROLLER_SECONDS
        while True:
            try:
                return await self._ask_controller_once(kind, body)
            except (NotController, PeerError) as error:
                if loop.time() > deadline:
                    raise NotController(f"no controller answers: {error}") from error
            await self.journal.stands_anew(RETRY_SECONDS)

    async def _ask_controller_once(self, kind: int, body: bytes) -> bytes:
        node_id = self.controller_id
        if self.leads or node_id == self.node_id:
            return await self.call(self.node_id, kind, body)
        if node_id is None:
            raise NotController("no controller is elected")
        return await self.links.call(node_id, kind, body, CALL_SECONDS)

    async def create_topics(
        self, wanted: Sequence[operations.WantedTopic]
    ) -> dict[str, KafkaError]:
        """Have topics that may be there already; the answer tells which cannot be."""
        asked = operations.CreateTopics(tuple(wanted))
        refused = await self.operate(asked, dict[str, tuple[int, str]])
        await self.elected(topic.name for topic in wanted)
        return {name: operations.Refused(*refusal) for name, refusal in refused.items()}

    async def elected(self, names: Iterable[str]) -> None:
        """Wait a while for the leaders of new topics."""
        made = [topic for name in names if (topic := self.tables.by_name.get(name)) is not None]
        groups = [partition.group_id for topic in made for partition in topic.partitions]
        await self.leaders.elected(groups, ELECTION_SECONDS)

    async def settled(self) -> None:
        """Wait a while for the leaders of the groups on this node that can elect one."""

        def can_elect(replica: Replica) -> bool:
            voters = replica.membership.voters
            return 2 * sum(self.is_up(node_of(voter)) for voter in voters) > len(voters)

        replicas = (partition.replica for partition in self.partitions)
        groups = [replica.group for replica in replicas if can_elect(replica)]
        await self.leaders.elected(groups, ELECTION_SECONDS)

    async def next_producer_id(self) -> ProducerId:
        """An id that no producer of this cluster ever had."""
        while not self._producer_ids:
            first, end = await self.operate(operations.ReserveProducerIds(), tuple[int, int])
            # Another request may have waited for the same reservation: keep the older block.
            if not self._producer_ids:
                self._producer_ids = range(first, end)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(first)

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, preferred: bool
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Give partitions to their preferred leaders; None for each that got it."""
        return await self._elections.elect(partitions, preferred=preferred)

    async def _ask_to_hand_over(self, node: NodeId, body: bytes) -> bytes:
        if node == self.node_id:
            return self._elections.hand_over(body)
        return await self.links.call(node, HAND_OVER, body, CALL_SECONDS)

    def _asking(self, kind: int) -> Callable[[NodeId, bytes], Awaitable[bytes]]:
        return lambda node, body: self.links.call(node, kind, body, CALL_SECONDS)

    def describe_quorum(self) -> QuorumInfo:
        """The controller's group, as its leader sees it."""
        status = self.journal.replica.status()
        return quorum_info(status, self.tables, TimestampMs(self._replicas.now_ms()))

    # -- from the journal to the partitions ---------------------------------------------------------

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Follow the journal and the standings from now on. `ended` hears of the end of a task,
        which none has by itself."""
        loop = asyncio.get_running_loop()
        for work in (self._follow_journal, self._follow_standings):
            task = loop.create_task(work())
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def _follow_journal(self) -> None:
        """At first everything there is, then change by change."""
        await self.journal.changes.get()
        while not self.journal.changes.empty():
            self.journal.changes.get_nowait()
        index = self.journal.applied_index
        self.partitions.remove_leftovers(self.tables.deleted_ids, self.tables.by_id)
        await self.reconciler.match_all()
        while True:
            self.meet_peers()
            self._reconciled.advance(index)
            change = await self.journal.changes.get()
            await self.reconciler.carry_out(change)
            index = change.index

    async def register(self, request: operations.RegisterMe, seeds: Sequence[PeerAddress]) -> None:
        """Tell the controller where this broker is. Tried until it works: without a majority of
        the brokers there is nothing that this one could do."""
        await refuse_other_cluster(self.links, seeds)
        body = operations.encode_operation(request)
        self._told_peers = self.journal.addresses()
        self.meet_peers()
        tries = 0
        while True:
            try:
                if tries % 2 and seeds:
                    # The addresses that we know may be old: all brokers may have moved at once.
                    address = seeds[tries // 2 % len(seeds)]
                    seed = await self.links.introduce(address)
                    others = [one for one in self._told_peers if one[0] != seed.node_id]
                    self._told_peers = [*others, (int(seed.node_id), *address)]
                    self.meet_peers()
                    reply = await self.links.call(seed.node_id, OPERATE, body, CALL_SECONDS)
                else:
                    reply = await self._ask_controller_once(OPERATE, body)
                told, index = operations.decode_reply(reply, operations.Registered)
                self._told_peers = told.brokers
                self.meet_peers()
                await self._reconciled.wait_for(index)
                self._told_peers = []
                self.meet_peers()
                return
            except (NotController, PeerError, OSError) as error:
                tries += 1
                if tries % COMPLAIN_EVERY_TRIES == 0:
                    logger.warning("waiting for a controller to register with: %s", error)
            await self.journal.stands_anew(RETRY_SECONDS)

    def meet_peers(self) -> None:
        """Keep a link to every other broker. The tables know them all, but not at once: a broker
        that has just joined, or come back, gets the tables over one of these links."""
        peers = {
            broker.node_id: PeerAddress(broker.host, broker.port)
            for broker in self.tables.brokers.values()
        }
        for node, host, port in self._told_peers:
            peers[NodeId(node)] = PeerAddress(host, port)
        peers.pop(self.node_id, None)
        self.links.set_peers(peers)

    async def _follow_standings(self) -> None:
        while True:
            for partition in await self._standings.take():
                if partition.failure is not None:
                    self.partitions.reopen_later(partition)
                self.coordinators.standing_changed(partition)
                self.leaders.announce([partition.replica], self._peers())

    async def advance(self) -> None:
        """Now and then: members, in-sync replicas, snapshots."""
        await self.members.advance()
        self.leaders.announce(self._replicas, self._peers())
        await self.scrubber.look_again()
        await self.journal.save_if_grown()

    async def _complete_reassignment(self, group: GroupId, target: tuple[NodeId, ...]) -> None:
        try:
            await self.operate(operations.CompleteReassignment(group, target), type(None))
        except KafkaError as error:
            logger.info("the reassignment of group %d is told later: %s", group, error)

    # -- leaving -------------------------------------------------------------------------------------

    async def drain(self, timeout_seconds: float) -> None:
        """Hand over everything that this node leads, as far as somebody can take it."""
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
            tries += 1  # whoever did not take it may have no room
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()

    # -- Inbox: what peers send ------------------------------------------------------------------------

    def raft_message(self, group: GroupId, message: Message) -> None:
        self._replicas.step(group, message)

    def reachable(self, node: NodeId) -> None:
        self._replicas.reachable(node)
        self.leaders.greet(node)

    def unreachable(self, node: NodeId) -> None:
        self._replicas.unreachable(node)
        self._elections.lost(node)

    def dropped(self, node: NodeId) -> None:
        self._replicas.dropped(node)

    def spoke_at(self) -> float:
        return self._replicas.spoke_at()

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        if kind == LEADERS:
            self.leaders.heard(body)

    async def call(self, node: NodeId, kind: int, body: bytes) -> bytes:
        if kind == OPERATE:
            return await self._operate_for(operations.decode_operation(body))
        if kind == FORWARD:
            if not self.leads:
                raise NotController("this broker is not the controller")
            response = await self.serve_request(body)
            return _index.pack(self.journal.applied_index) + response
        if kind == HAND_OVER:
            return self._elections.hand_over(body)
        if kind in (BATCH, PREFIX):
            return (self.scrubber if kind == BATCH else self._replicas.prefixes).serve(body)
        raise ProtocolError(f"call of unknown kind {kind}")

    async def _operate_for(self, operation: operations.Operation) -> bytes:
        if not self.leads:
            # A broker that joins asks whomever it knows.
            controller = self.controller_id
            if controller is None or controller == self.node_id:
                raise NotController("no controller is elected")
            body = operations.encode_operation(operation)
            try:
                return await self.links.call(controller, OPERATE, body, CALL_SECONDS)
            except PeerError as error:
                raise NotController(f"broker {controller} does not answer: {error}") from error
        try:
            answer, index = await self.journal.submit(
                lambda: cast(Outcome[object], operation.decide(self.controller))
            )
        except ControllerMoved as moved:
            raise NotController(str(moved)) from None
        except NotController:
            raise
        except KafkaError as error:
            return operations.encode_refusal(error)
        return operations.encode_answer(answer, index)

    def _peers(self) -> list[NodeId]:
        return [node for node in self.live_nodes() if node != self.node_id]

    def _post_leaders(self, node: NodeId, body: bytes) -> None:
        self.links.post(node, LEADERS, body)


def _could_hand_over(replica: Replica) -> bool:
    return replica.is_leader and len(replica.in_sync()) > 1
