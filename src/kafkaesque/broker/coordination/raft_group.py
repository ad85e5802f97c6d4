"""The coordination tree as a Raft group: commands in a log that every broker has.

The leader appends; a follower forwards its commands, many in one call and one call at a time, so that
they keep their order. Each has a unique name (the record's key), and its proposer gets the outcome
when the entry with that name is applied here. A command fails with NotCommitted when its outcome
becomes unknown: the answer was lost, or the term in which it was appended ended before it was seen
to be committed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Final

from kafkaesque.broker.cluster.replicated_machine import ReplicatedMachine, StateFile
from kafkaesque.broker.coordination.replicated import Applied, NotCommitted
from kafkaesque.broker.coordination.rules import peer_messages
from kafkaesque.broker.coordination.rules.machine import ApplyResult
from kafkaesque.broker.coordination.rules.peer_messages import (
    PROPOSE,
    READ,
    TOUCH,
    Accepted,
    ProposedCommand,
)
from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import LogIndex, Refused, Snapshot, Term
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.peer_calls import PeerBusy, PeerError, PeerUnreachable
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import (
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    StorageFailed,
    check,
)
from kafkaesque.model.ids import LeaderEpoch, NodeId, node_of
from kafkaesque.model.limits import MIB
from kafkaesque.records.batch import read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch

CALL_SECONDS: Final = 3.0
WAIT_SECONDS: Final = 5.0
"""How long a command that no leader has accepted yet waits for one."""
RETRY_SECONDS: Final = 0.03
LEADERLESS_SECONDS: Final = 1.0
"""How long clients are kept while no leader with a majority is known: an election is shorter. Together
with the second after which a silent link is noticed, this stays below the minimum session timeout, so
a client has left a partitioned server before the others can expire its session."""

CALL_BYTES_MAX: Final = 4 * MIB
CALL_ENTRIES_MAX: Final = 1000
SNAPSHOT_ENTRIES: Final = 50_000
SNAPSHOT_BYTES: Final = 64 * MIB
"""A snapshot is due after this many commands, or when the log is this large."""
SNAPSHOT_ENTRIES_MIN: Final = 100

_PROCESS_ID_BYTES = 8


class _Proposal:
    """A command that this server proposed."""

    __slots__ = ("deadline", "entry", "outcome", "term")

    def __init__(
        self, entry: ProposedCommand, outcome: asyncio.Future[ApplyResult], deadline: float
    ) -> None:
        self.entry = entry
        self.outcome = outcome
        self.deadline = deadline
        """Fails if no leader has accepted it by then."""
        self.term: Term | None = None
        """The term in which a leader accepted it."""

    def fail(self, reason: str) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(NotCommitted(reason))


class RaftGroup(ReplicatedMachine):
    """Implements `replicated.Replicated`, and serves the other brokers."""

    __slots__ = (
        "_available_s",
        "_clock",
        "_links",
        "_machine",
        "_number",
        "_process_id",
        "_proposals",
        "_queue",
        "_reads",
        "_replicas",
        "_sender",
    )

    def __init__(
        self,
        states: StateFile,
        fail: Callable[[BaseException], None],
        replicas: ReplicaSet,
        clock: Clock,
        machine: Applied,
        links: Links,
        new_replica: Callable[[StateMachine], Replica],
    ) -> None:
        super().__init__(states, replicas.raft_journal, fail, new_replica)
        self._links = links
        self._replicas = replicas
        self._clock = clock
        self._machine = machine
        self._process_id = secrets.token_bytes(_PROCESS_ID_BYTES)
        """Makes the names of this process's commands unique."""
        self._number = 0
        self._proposals: dict[bytes, _Proposal] = {}
        """By name, until the outcome is known."""
        self._queue: deque[_Proposal] = deque()
        """Proposals that no leader has accepted yet."""
        self._sender: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Future[LogIndex]] = set()
        self._available_s = clock.monotonic()
        self._load()

    # -- Replicated ----------------------------------------------------------------------------------

    def propose(self, command: bytes) -> Awaitable[ApplyResult]:
        loop = asyncio.get_running_loop()
        self._number += 1
        entry = ProposedCommand(self._process_id + self._number.to_bytes(8, "big"), command)
        proposal = _Proposal(entry, loop.create_future(), loop.time() + WAIT_SECONDS)
        self._proposals[entry.key] = proposal
        proposal.outcome.add_done_callback(lambda _: self._proposals.pop(entry.key, None))
        if not self._queue and self.is_leader and self._append([entry]).entry_count:
            proposal.term = self.replica.leadership.term
        else:
            self._queue.append(proposal)
            if self._sender is None:
                self._sender = loop.create_task(self._forward())
        return proposal.outcome

    async def read_barrier(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.applied_to(await self._read_index())
                return
            except TimeoutError as error:
                raise NotCommitted("this server lags too far") from error
            except (KafkaError, PeerError, Refused) as error:
                if loop.time() > deadline:
                    raise NotCommitted(f"no leader answers: {error}") from error
            await asyncio.sleep(RETRY_SECONDS)

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        leader = self._leader_node
        if self.is_leader:
            self._machine.sessions_touched(session_ids)
        elif leader is not None:
            self._links.post(leader, TOUCH, peer_messages.encode_sessions(session_ids))

    @property
    def is_voter(self) -> bool:
        return self._replicas.member in self.replica.membership.voters

    @property
    def term(self) -> int:
        return self.replica.leadership.term

    @property
    def is_available(self) -> bool:
        now_s = self._clock.monotonic()
        if self.has_leader and not self.replica.is_without_room:
            # With a full disk nothing is applied here: clients should find another server.
            self._available_s = now_s
        return now_s - self._available_s <= LEADERLESS_SECONDS

    @property
    def has_leader(self) -> bool:
        if self.is_leader:
            return self._replicas.may_serve(self.replica)
        leader = self._leader_node
        return leader is not None and self._links.is_up(leader)

    @property
    def _leader_node(self) -> NodeId | None:
        """The leader, if it is another broker."""
        leader = self.replica.leadership.leader_id
        return None if leader is None or leader == self._replicas.member else node_of(leader)

    # -- forwarding ----------------------------------------------------------------------------------

    async def _forward(self) -> None:
        """Sends the queue to the leader, wherever it is, in order."""
        try:
            while self._queue:
                offered = list(islice(self._queue, self._call_size()))
                try:
                    accepted = await self._offer([proposal.entry for proposal in offered])
                except PeerError as error:
                    self._fail_first(len(offered), f"the leader did not answer: {error}")
                    continue
                self._note_accepted(accepted)
                if accepted.entry_count < len(offered):
                    self._fail_overdue()
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._sender = None

    def _call_size(self) -> int:
        count = size_bytes = 0
        for proposal in islice(self._queue, CALL_ENTRIES_MAX):
            size_bytes += len(proposal.entry.command)
            if count and size_bytes > CALL_BYTES_MAX:
                break
            count += 1
        return count

    async def _offer(self, entries: list[ProposedCommand]) -> Accepted:
        """Raises PeerError if it is unknown whether they were accepted."""
        if self.is_leader:
            return self._append(entries)
        leader = self._leader_node
        if leader is not None:
            try:
                body = peer_messages.encode_entries(entries)
                answer = await self._links.call(leader, PROPOSE, body, CALL_SECONDS)
                return peer_messages.decode_accepted(answer)
            except (PeerUnreachable, PeerBusy):
                pass  # nothing was started: a retry may find another leader
        return Accepted(0, self.replica.leadership.term)

    def _append(self, entries: list[ProposedCommand]) -> Accepted:
        """Appends to the log, as the leader, as many as it accepts."""
        term = self.replica.leadership.term
        for count, entry in enumerate(entries):
            now_ms = self._clock.wall_ms()
            offset = self.replica.next_offset
            record = Record(offset, now_ms, *entry)
            epoch = LeaderEpoch(term)
            batch = memoryview(encode_batch([record], base_offset=offset, leader_epoch=epoch))
            try:
                self.replica.append(batch, read_header(batch), now_ms)
            except (NotLeaderOrFollower, NotEnoughReplicas, StorageFailed):
                return Accepted(count, term)
        return Accepted(len(entries), term)

    def _note_accepted(self, accepted: Accepted) -> None:
        is_over = accepted.term < self.replica.leadership.term
        for _ in range(accepted.entry_count):
            proposal = self._queue.popleft()
            proposal.term = accepted.term
            if is_over:
                # The term ended, with or without the command, before we could observe it.
                self._fail_one(proposal, "the leader that accepted it was deposed")

    def _fail_first(self, count: int, reason: str) -> None:
        for _ in range(count):
            self._fail_one(self._queue.popleft(), reason)

    def _fail_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._queue and self._queue[0].deadline < now:
            self._fail_one(self._queue.popleft(), "no leader accepted it")

    def _fail_one(self, proposal: _Proposal, reason: str) -> None:
        # Already gone if it was applied before the leader's answer arrived.
        if self._proposals.pop(proposal.entry.key, None) is not None:
            proposal.fail(reason)

    def _fail_accepted(self, reason: str, before: Term | None = None) -> None:
        """Fails the proposals that a leader accepted, in a term earlier than `before`."""
        for proposal in tuple(self._proposals.values()):
            if proposal.term is not None and (before is None or proposal.term < before):
                self._fail_one(proposal, reason)

    # -- reads ---------------------------------------------------------------------------------------

    async def _read_index(self) -> LogIndex:
        if self.is_leader:
            return await self._request_read_index()
        leader = self._leader_node
        if leader is None:
            raise self._moved()
        answer = await self._links.call(leader, READ, b"", CALL_SECONDS)
        return peer_messages.decode_index(answer)

    def _request_read_index(self) -> asyncio.Future[LogIndex]:
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()

        def resolve(index: LogIndex) -> None:
            if not future.done():
                future.set_result(index)

        self.replica.read_index(resolve)
        self._reads.add(future)
        future.add_done_callback(self._reads.discard)
        return future

    # -- calls of other brokers ------------------------------------------------------------------------

    def call(self, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        if kind == PROPOSE:
            # Without waiting, so that calls of one broker are appended in order.
            entries = peer_messages.decode_entries(body)
            accepted = (
                self._append(entries)
                if self.is_leader
                else Accepted(0, self.replica.leadership.term)
            )
            return peer_messages.encode_accepted(accepted)
        if kind == READ:
            return self._answer_read()
        raise ProtocolError(f"call of unknown kind {kind}")

    async def _answer_read(self) -> bytes:
        if not self.is_leader:
            raise self._moved()
        return peer_messages.encode_index(await self._request_read_index())

    def post(self, kind: int, body: bytes) -> None:
        if kind == TOUCH and self.is_leader:
            self._machine.sessions_touched(peer_messages.decode_sessions(body))

    # -- ReplicatedMachine -----------------------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        super().leadership_changed(leadership)
        self._fail_accepted("another leader was elected", before=leadership.term)
        if not self.is_leader:
            for read in tuple(self._reads):
                if not read.done():
                    read.set_exception(self._moved())

    def installed(self, snapshot: Snapshot) -> None:
        super().installed(snapshot)
        self._fail_accepted("this server installed a snapshot")

    def failed(self, error: StorageFailed) -> None:
        super().failed(error)
        self._fail_accepted(str(error))

    def _moved(self) -> KafkaError:
        return NotLeaderOrFollower("this broker does not lead the coordination group")

    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        (record,) = decode_batch(batch, 0)
        check(record.value is not None, "a command has a body")
        outcome = self._machine.apply(index, bytes(record.value or b""))
        proposal = self._proposals.pop(bytes(record.key or b""), None)
        if proposal is not None and not proposal.outcome.done():
            proposal.outcome.set_result(outcome)

    def _snapshot(self) -> bytes:
        return self._machine.snapshot()

    def _restore(self, snapshot: bytes) -> None:
        self._machine.restore(snapshot)

    def _is_grown(self, entry_count: int) -> bool:
        if entry_count >= SNAPSHOT_ENTRIES:
            return True
        log = self.replica.entries.log
        return entry_count >= SNAPSHOT_ENTRIES_MIN and log.size_bytes >= SNAPSHOT_BYTES

    async def stop(self) -> None:
        """Stops forwarding and fails all proposals."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait((self._sender,))
        self._fail_first(len(self._queue), "this broker stops")
        self._fail_accepted("this broker stops")
