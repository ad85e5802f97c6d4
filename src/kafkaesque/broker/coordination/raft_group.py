"""The coordination tree as a Raft group: commands in a log that every broker has.

The leader appends; a follower passes its commands on, many in one call and one call at a time, so
that they keep their order. Each carries a name made here (the record's key), and whoever proposed
it learns the outcome when the entry of that name is applied here. A command is given up, with
NotCommitted, when nobody can tell any more what becomes of it: the answer was lost, or the term in
which it was appended ended before it was seen to be committed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Final

from kafkaesque.broker.cluster.replicated_machine import ReplicatedMachine, StateFile
from kafkaesque.broker.coordination import peer_messages
from kafkaesque.broker.coordination.peer_messages import PROPOSE, READ, TOUCH, Entry, Taken
from kafkaesque.broker.coordination.replicated import Applied, NotCommitted
from kafkaesque.broker.coordination.rules.machine import Outcome
from kafkaesque.broker.raft.ready import Standing
from kafkaesque.broker.raft.types import LogIndex, Refused, Snapshot, Term
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.peer_calls import PeerBusy, PeerError, PeerUnreachable
from kafkaesque.broker.replication.replica_set import ReplicaSet
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
"""How long a command that nobody has taken yet waits for a leader."""
RETRY_SECONDS: Final = 0.03
LEADERLESS_SECONDS: Final = 1.0
"""How long clients are kept while no leader with a majority is known: an election is shorter. With
the second after which a silent link is noticed this stays below the least session timeout, so a
client has left a server that is cut off before the others can end its session."""

CALL_BYTES_MAX: Final = 4 * MIB
CALL_ENTRIES_MAX: Final = 1000
SNAPSHOT_ENTRIES: Final = 50_000
SNAPSHOT_BYTES: Final = 64 * MIB
"""A snapshot is due after so many commands, or when the log is so large."""
SNAPSHOT_ENTRIES_MIN: Final = 100

_LIFE_BYTES = 8


class _Proposal:
    """A command that this server has put forward."""

    __slots__ = ("deadline", "entry", "outcome", "term")

    def __init__(self, entry: Entry, outcome: asyncio.Future[Outcome], deadline: float) -> None:
        self.entry = entry
        self.outcome = outcome
        self.deadline = deadline
        """If nobody has taken it by then."""
        self.term: Term | None = None
        """In which a leader took it."""

    def fail(self, reason: str) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(NotCommitted(reason))


class RaftGroup(ReplicatedMachine):
    """Implements `replicated.Replicated`, and answers the other brokers."""

    __slots__ = (
        "_available_s",
        "_clock",
        "_life",
        "_machine",
        "_number",
        "_proposals",
        "_queue",
        "_reads",
        "_replicas",
        "_sender",
        "links",
    )

    links: Links
    """Set before the first peer can be heard."""

    def __init__(
        self,
        states: StateFile,
        fail: Callable[[BaseException], None],
        replicas: ReplicaSet,
        clock: Clock,
        machine: Applied,
    ) -> None:
        super().__init__(states, fail)
        self._replicas = replicas
        self._clock = clock
        self._machine = machine
        self._life = secrets.token_bytes(_LIFE_BYTES)
        """Tells the names of this process's commands from all others."""
        self._number = 0
        self._proposals: dict[bytes, _Proposal] = {}
        """By their names, until the outcome is known."""
        self._queue: deque[_Proposal] = deque()
        """Those that no leader has taken yet."""
        self._sender: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Future[LogIndex]] = set()
        self._available_s = clock.monotonic()

    # -- Replicated ----------------------------------------------------------------------------------

    def propose(self, command: bytes) -> Awaitable[Outcome]:
        loop = asyncio.get_running_loop()
        self._number += 1
        entry = Entry(self._life + self._number.to_bytes(8, "big"), command)
        proposal = _Proposal(entry, loop.create_future(), loop.time() + WAIT_SECONDS)
        self._proposals[entry.key] = proposal
        proposal.outcome.add_done_callback(lambda _: self._proposals.pop(entry.key, None))
        if not self._queue and self.leads and self._append([entry]).entry_count:
            proposal.term = self.replica.standing.term
        else:
            self._queue.append(proposal)
            if self._sender is None:
                self._sender = loop.create_task(self._pass_on())
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
                raise NotCommitted("this server lags behind its leader") from error
            except (KafkaError, PeerError, Refused) as error:
                if loop.time() > deadline:
                    raise NotCommitted(f"no leader answers: {error}") from error
            await asyncio.sleep(RETRY_SECONDS)

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        leader = self._leader_node
        if self.leads:
            self._machine.touched(session_ids)
        elif leader is not None:
            self.links.post(leader, TOUCH, peer_messages.encode_sessions(session_ids))

    @property
    def is_leader(self) -> bool:
        return self.leads

    @property
    def is_voter(self) -> bool:
        return self._replicas.member in self.replica.membership.voters

    @property
    def term(self) -> int:
        return self.replica.standing.term

    @property
    def is_available(self) -> bool:
        now_s = self._clock.monotonic()
        if self.has_leader and not self.replica.is_without_room:
            # Without room nothing is applied here, and clients are better off elsewhere.
            self._available_s = now_s
        return now_s - self._available_s <= LEADERLESS_SECONDS

    @property
    def has_leader(self) -> bool:
        if self.leads:
            return self._replicas.may_serve(self.replica)
        leader = self._leader_node
        return leader is not None and self.links.is_up(leader)

    @property
    def _leader_node(self) -> NodeId | None:
        """The leader, if it is another broker."""
        leader = self.replica.standing.leader_id
        return None if leader is None or leader == self._replicas.member else node_of(leader)

    # -- commands on their way -----------------------------------------------------------------------

    async def _pass_on(self) -> None:
        """Bring what waits to the leader, wherever that is, in order."""
        try:
            while self._queue:
                offered = list(islice(self._queue, self._call_size()))
                try:
                    taken = await self._offer([proposal.entry for proposal in offered])
                except PeerError as error:
                    self._give_up(len(offered), f"the leader did not answer: {error}")
                    continue
                self._note_taken(taken)
                if taken.entry_count < len(offered):
                    self._give_up_late()
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

    async def _offer(self, entries: list[Entry]) -> Taken:
        """PeerError if it is not known whether they were taken."""
        if self.leads:
            return self._append(entries)
        leader = self._leader_node
        if leader is not None:
            try:
                body = peer_messages.encode_entries(entries)
                answer = await self.links.call(leader, PROPOSE, body, CALL_SECONDS)
                return peer_messages.decode_taken(answer)
            except (PeerUnreachable, PeerBusy):
                pass  # nothing was begun: another try may find another leader
        return Taken(0, self.replica.standing.term)

    def _append(self, entries: list[Entry]) -> Taken:
        """Into the log, as the leader; as many as it takes."""
        term = self.replica.standing.term
        for count, entry in enumerate(entries):
            now_ms = self._clock.wall_ms()
            offset = self.replica.next_offset
            record = Record(offset, now_ms, *entry)
            epoch = LeaderEpoch(term)
            batch = memoryview(encode_batch([record], base_offset=offset, leader_epoch=epoch))
            try:
                self.replica.append(batch, read_header(batch), now_ms)
            except (NotLeaderOrFollower, NotEnoughReplicas, StorageFailed):
                return Taken(count, term)
        return Taken(len(entries), term)

    def _note_taken(self, taken: Taken) -> None:
        is_over = taken.term < self.replica.standing.term
        for _ in range(taken.entry_count):
            proposal = self._queue.popleft()
            proposal.term = taken.term
            if is_over:
                # The term may have ended with or without it, before we could watch for that.
                self._forget(proposal, "the leader that took it leads no more")

    def _give_up(self, count: int, reason: str) -> None:
        for _ in range(count):
            self._forget(self._queue.popleft(), reason)

    def _give_up_late(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._queue and self._queue[0].deadline < now:
            self._forget(self._queue.popleft(), "no leader took it")

    def _forget(self, proposal: _Proposal, reason: str) -> None:
        # Gone already if it was applied while the answer of the leader was on its way.
        if self._proposals.pop(proposal.entry.key, None) is not None:
            proposal.fail(reason)

    def _forget_taken(self, reason: str, before: Term | None = None) -> None:
        """Those that a leader took, in a term earlier than `before`."""
        for proposal in tuple(self._proposals.values()):
            if proposal.term is not None and (before is None or proposal.term < before):
                self._forget(proposal, reason)

    # -- reads ---------------------------------------------------------------------------------------

    async def _read_index(self) -> LogIndex:
        if self.leads:
            return await self._ask_raft()
        leader = self._leader_node
        if leader is None:
            raise self._moved()
        answer = await self.links.call(leader, READ, b"", CALL_SECONDS)
        return peer_messages.decode_index(answer)

    def _ask_raft(self) -> asyncio.Future[LogIndex]:
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()

        def tell(index: LogIndex) -> None:
            if not future.done():
                future.set_result(index)

        self.replica.read_index(tell)
        self._reads.add(future)
        future.add_done_callback(self._reads.discard)
        return future

    # -- what other brokers ask ------------------------------------------------------------------------

    def call(self, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        if kind == PROPOSE:
            # At once, so that calls of one broker are appended in their order.
            entries = peer_messages.decode_entries(body)
            taken = self._append(entries) if self.leads else Taken(0, self.replica.standing.term)
            return peer_messages.encode_taken(taken)
        if kind == READ:
            return self._answer_read()
        raise ProtocolError(f"call of unknown kind {kind}")

    async def _answer_read(self) -> bytes:
        if not self.leads:
            raise self._moved()
        return peer_messages.encode_index(await self._ask_raft())

    def post(self, kind: int, body: bytes) -> None:
        if kind == TOUCH and self.leads:
            self._machine.touched(peer_messages.decode_sessions(body))

    # -- ReplicatedMachine -----------------------------------------------------------------------------

    def stands(self, standing: Standing) -> None:
        super().stands(standing)
        self._forget_taken("another leader was elected", before=standing.term)
        if not self.leads:
            for read in tuple(self._reads):
                if not read.done():
                    read.set_exception(self._moved())

    def installed(self, snapshot: Snapshot) -> None:
        super().installed(snapshot)
        self._forget_taken("this server jumped ahead")

    def failed(self, error: StorageFailed) -> None:
        super().failed(error)
        self._forget_taken(str(error))

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
        """Nothing is passed on any more."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait((self._sender,))
        self._give_up(len(self._queue), "this broker stops")
        self._forget_taken("this broker stops")
