"""One Raft group on this node: carries out what its `Raft` decides.

A leader appends a batch in one way, `append`:

1. Check that Raft would accept the batch: it leads, no transfer of leadership is under way, and
   not too much is uncommitted.
2. Write the batch to the log. If it cannot be written yet, it is held in memory and written by
   a later Ready: because a control entry before it is not durable (`EntryLog.gate_position`), or
   because this disk is full while other members may have room.
3. Propose the batch at the end of this turn (see `replica_set`), together with the others of
   the turn. There is one exception: the only voter of a group commits a batch by writing it, unless
   a sync is due. Raft is informed of such batches before it does anything else (`_inform_raft`).

Everything else comes out of Raft as a `Ready`. `process` takes Readies until there are none: it
writes what is not in the log yet (docs/RAFT.md has the order), sends messages and calls the state
machine. A Ready waits

- in the *backlog* until the gate is open and the disk has room; then
- as a *sync token* until the raft journal and the log are synced as far as the Ready reached.

Everything runs on the event loop's thread and returns at once, except `sync`, which the flusher
calls from a worker thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.membership import MembershipChange
from kafkaesque.broker.raft.messages import Append, InstallSnapshot, Message
from kafkaesque.broker.raft.ready import Leadership, Ready, Status
from kafkaesque.broker.raft.types import (
    NO_INDEX,
    Entry,
    LogIndex,
    Membership,
    Proposal,
    Refusal,
    Role,
    SyncToken,
)
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.broker.replication.rules.pending_readies import Backlog, SyncTokens, Unwritten
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.model.errors import (
    CorruptMessage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageFailed,
    check,
)
from kafkaesque.model.ids import GroupId, MemberId, Offset
from kafkaesque.model.setting import INT64_MAX
from kafkaesque.records.batch import BatchHeader

logger = logging.getLogger(__name__)

_make_tuple = tuple.__new__  # half the price of a NamedTuple's own constructor

STUCK_TICKS_MAX = 10
"""A leader resigns if it has waited this long for one sync while the others are faster."""
IN_SYNC_LAG_ENTRIES_MAX = 1000
"""A replica that lags more is not reported to clients as in sync."""


class ReplicaHost(Protocol):
    """The services of a node that its replicas share. Implemented by `ReplicaSet`."""

    @property
    def raft_journal(self) -> RaftJournal: ...

    def touch(self, replica: Replica) -> None:
        """Call its `process` at the end of this turn."""

    def sync_raft_journal(self, replica: Replica) -> None:
        """Sync the raft journal soon, then call its `raft_journal_synced`."""

    def sync_log(self, replica: Replica) -> None:
        """Call its `sync` from a worker thread soon, then `synced` or `sync_failed`."""

    def send(self, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None: ...

    def damaged(self, replica: Replica) -> None:
        """A batch of its log is not what was written."""

    def fetch_prefix(self, replica: Replica, message: InstallSnapshot) -> None:
        """Fetch the batches that the snapshot refers to, then `step` the message again."""

    def now_ms(self) -> int: ...


class Replica:
    """See the module's docstring."""

    __slots__ = (
        "_backlog",
        "_committed_index",
        "_controls",
        "_failure",
        "_host",
        "_is_ahead_of_raft",
        "_machine",
        "_proposals",
        "_tokens",
        "entries",
        "flush_messages",
        "group",
        "is_leader",
        "leadership",
        "raft",
    )

    def __init__(
        self,
        group: GroupId,
        raft: Raft,
        entries: EntryLog,
        host: ReplicaHost,
        machine: StateMachine,
        *,
        flush_messages: int = 1,
    ) -> None:
        self.group = group
        self.raft = raft
        self.entries = entries
        self.flush_messages = flush_messages
        """The log is synced when this many records are not; 1 syncs each batch before it counts."""
        self._host = host
        self._machine = machine
        self._set_leadership(raft.leadership)
        self._proposals: list[Proposal] = []
        """Appended in this turn. Proposed together at its end, or before any other call to Raft."""
        self._is_ahead_of_raft = False
        """The only voter appends without Raft: nothing but such appends has happened since this was
        set, and Raft has not been informed of them."""
        self._backlog = Backlog()
        self._tokens = SyncTokens()
        self._committed_index = NO_INDEX
        """The state machine has been notified up to here."""
        self._controls: deque[tuple[LogIndex, bytes]] = deque(entries.pending_controls())
        """The state machine's control entries that it has not been notified of."""
        self._failure: StorageFailed | None = None

    # -- state -------------------------------------------------------------------------------------

    def _set_leadership(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.is_leader = leadership.is_confirmed and leadership.role is Role.LEADER
        """Leads a term in which an entry is committed, so it has everything that is committed. A
        plain attribute, because every request reads it."""

    @property
    def is_alone(self) -> bool:
        """The group has no other member, so nothing is ever sent."""
        membership = self.raft.membership
        return len(membership.voters) == 1 and not membership.learners

    @property
    def is_without_room(self) -> bool:
        """Something that it received or appended waits for room on the disk."""
        return self._backlog.refusal is not None

    @property
    def next_offset(self) -> Offset:
        """The offset of the next batch that this leader appends. Beyond the log's end while batches
        are held."""
        return max(self.entries.log.log_end_offset, self._backlog.held_end_offset)

    @property
    def last_index(self) -> LogIndex:
        """The last entry, appended here or received from a leader."""
        if self._is_ahead_of_raft:
            return self.entries.last_index
        return LogIndex(self.raft.last_index + len(self._proposals))

    @property
    def membership(self) -> Membership:
        return self.raft.membership

    # -- append ------------------------------------------------------------------------------------

    def append(self, records: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """Write and replicate a batch that is stamped with `next_offset` and this leader's term.

        Returns True if the batch is committed already. Otherwise the state machine's `committed`
        reports it. Raises NotLeaderOrFollower, NotEnoughReplicas or StorageFailed; then nothing has
        changed.
        """
        is_committed_by_write = self._commits_by_write(header)
        if not is_committed_by_write:
            self._check_proposal(header.size_bytes)
        index = LogIndex(self.last_index + 1)
        payload = self._write_or_hold(index, records, header, now_ms)
        if is_committed_by_write:
            return True
        self._proposals.append(Proposal(payload, header.size_bytes))
        self._touch()
        return False

    def _commits_by_write(self, header: BatchHeader) -> bool:
        """Whether writing the batch commits it: this node is the only voter, Raft has nothing under
        way, and no sync is due."""
        flush_messages = self.flush_messages
        if flush_messages == 1:
            if self._is_ahead_of_raft:
                self._inform_raft()  # the setting changed meanwhile
            return False
        if not self._is_ahead_of_raft:
            is_idle = not self._proposals and self.entries.is_gate_open and self.is_leader
            # The state machine must have been notified of all that Raft has committed: once ahead,
            # this replica does not notify it of older entries any more.
            is_notified = self.raft.commit_index <= self._committed_index
            if not is_idle or not is_notified or not self.raft.may_commit_as_sole_voter:
                return False
            self._is_ahead_of_raft = True
        if flush_messages == INT64_MAX:
            return True
        is_sync_due = header.next_offset - self.entries.log.synced_offset >= flush_messages
        if is_sync_due:
            self._inform_raft()
        return not is_sync_due

    def _check_proposal(self, size_bytes: int) -> None:
        for proposal in self._proposals:
            size_bytes += proposal.size_bytes
        refusal = self.raft.refusal(size_bytes)
        if refusal is Refusal.OVERLOADED:
            raise NotEnoughReplicas(f"group {self.group} has too much that no majority holds yet")
        if refusal is not None or not self.is_leader:
            reason = (refusal or Refusal.NOT_LEADER).value
            raise NotLeaderOrFollower(f"group {self.group}: {reason}")

    def _write_or_hold(
        self, index: LogIndex, records: memoryview, header: BatchHeader, now_ms: int
    ) -> BatchPayload | BatchRef:
        """The batch becomes entry `index`: in the log now, or in memory until a Ready writes it."""
        if index != self.entries.last_index + 1 or not self.entries.is_gate_open:
            self._backlog.refuse_if_full()
            return self._hold(records, header)
        is_alone = self.is_alone
        data = records if is_alone else bytes(records)
        payload = _make_tuple(BatchPayload, (data, header))
        try:
            written = self.entries.append_batch(index, self.leadership.term, payload, now_ms)
        except StorageFailed as error:
            self._wait_for_room(error)
            return self._hold(records, header)
        # Without other members the caller's memory is not kept: a member that joins later is sent
        # batches from the log.
        return written if is_alone else payload

    def _hold(self, records: memoryview, header: BatchHeader) -> BatchPayload:
        self._backlog.held_end_offset = header.next_offset
        return BatchPayload(bytes(records), header)

    def _wait_for_room(self, error: StorageFailed) -> None:
        """The disk is full. Raises `error` unless this replica may wait for room: a leader lets the
        others write meanwhile, and a follower waits if the node needs it."""
        may_wait = self.leadership.role is Role.LEADER or self._machine.waits_for_room
        if self.is_alone or self.entries.log.failure is not None or not may_wait:
            raise error
        if self._backlog.refused(error):
            logger.warning("group %d waits for room: %s", self.group, error)

    def _touch(self) -> None:
        """Schedule `process`, for any reason but an append that was committed by its write."""
        if self._is_ahead_of_raft:
            self._inform_raft()
        self._host.touch(self)

    def _inform_raft(self) -> None:
        """Report appended batches to Raft, which must see the log's actual end."""
        if self._is_ahead_of_raft:
            check(not self._proposals, f"group {self.group} appended with and without Raft")
            self._is_ahead_of_raft = False
            if self.entries.last_index > self._committed_index:
                self._committed_index = self.entries.last_index
                self.raft.commit_as_sole_voter(self._committed_index)
        elif self._proposals:
            proposals, self._proposals = self._proposals, []
            self.raft.propose(proposals)

    # -- requests of the state machine -------------------------------------------------------------

    def propose_control(self, payload: bytes) -> LogIndex:
        """Replicate a fact about the group that takes no offset. Raises as `append` does."""
        self._inform_raft()
        self._check_proposal(len(payload))
        index = self.raft.propose((Proposal(payload, len(payload)),))
        self._touch()
        return index

    def propose_membership(self, change: MembershipChange) -> LogIndex:
        """Raises Refused."""
        self._inform_raft()
        index = self.raft.propose_membership(change)
        self._touch()
        return index

    def read_index(self, reply: Callable[[LogIndex], None]) -> None:
        """Request the index that a linearizable read has to wait for. `process` calls `reply` with it
        once a majority has confirmed this leader, and never if leadership is lost before: the state
        machine's `leadership_changed` reports that. Raises Refused."""
        self._inform_raft()
        self.raft.read_index(reply)
        self._touch()

    def transfer_leadership(self, target: MemberId) -> None:
        """Raises Refused."""
        self._inform_raft()
        self.raft.transfer_leadership(target)
        self._touch()

    def campaign(self) -> None:
        self._inform_raft()
        self.raft.campaign()
        self._touch()

    def resign(self) -> None:
        self._inform_raft()
        self.raft.resign()
        self._touch()

    def status(self) -> Status:
        self._inform_raft()
        return self.raft.status()

    def has_committed(self, index: LogIndex) -> bool:
        """Whether the entry is in the log and known here to be committed."""
        self._inform_raft()
        return self.entries.first_index <= index <= self._committed_index

    def is_held_by(self, index: LogIndex, count: int) -> bool:
        """Whether `count` voters, this leader included, have the entry on disk."""
        status = self.status()
        held = [status.durable_index] if status.node_id in status.membership.voters else []
        held += [peer.match_index for peer in status.peers.values() if not peer.is_learner]
        return sum(match >= index for match in held) >= count

    def in_sync(self) -> list[MemberId]:
        """Voters that answer and lag little; empty unless this node leads."""
        return self.status().in_sync(IN_SYNC_LAG_ENTRIES_MAX)

    # -- events of the node ------------------------------------------------------------------------

    def step(self, message: Message) -> None:
        """A message from a peer."""
        if type(message) is InstallSnapshot and self.entries.lacks_prefix(message.snapshot):
            self._host.fetch_prefix(self, message)
        elif self._failure is None:
            self._inform_raft()
            self.raft.step(message)
            self._touch()

    def tick(self) -> None:
        self._inform_raft()
        is_due = self.raft.tick()
        if self._backlog.tick() and self._failure is None:
            self._write()
        # A successor was asked to campaign and did not. The request may still arrive, so no lease
        # is safe for the rest of the term; a new term is better than a leader that may not serve.
        is_transfer_abandoned = self.raft.has_handed_over and not self.raft.is_transferring
        if self._is_disk_too_slow() or is_transfer_abandoned:
            self.raft.resign()
            is_due = True
        if is_due:
            self._touch()

    def _is_disk_too_slow(self) -> bool:
        """Whether another member should lead because its disk is faster. If all disks are slow the
        leader stays: a thousand groups that resign on a busy machine make it busier."""
        ticks, is_full = self._tokens.tick(), self._backlog.refusal is not None
        if not (is_full or (ticks and ticks % STUCK_TICKS_MAX == 0)) or not self.is_leader:
            return False
        status = self.status()
        is_behind = status.durable_index < status.majority_index
        if is_behind:
            reason = "full" if is_full else "slow"
            logger.warning("group %d: the disk is too %s to lead", self.group, reason)
        return is_behind

    def peer_unreachable(self, member: MemberId) -> None:
        self._inform_raft()
        self.raft.peer_unreachable(member)
        self._touch()

    def peer_reachable(self, member: MemberId) -> None:
        self._inform_raft()
        self.raft.peer_reachable(member)
        self._touch()

    def process(self) -> None:
        """Do everything there is to do now."""
        self._inform_raft()
        while self._failure is None and (ready := self.raft.ready()) is not None:
            self._handle(ready)
            if ready.is_only_messages:
                # Sending changes nothing here, so there is no further Ready. Most are heartbeats.
                break
        if self.leadership.role is Role.LEADER and self._failure is None:
            # A majority of others may have on disk what this node has not, and no Ready says so.
            self._notify_committed(min(self.raft.commit_index, self.entries.last_index))

    def _handle(self, ready: Ready) -> None:
        if ready.leadership is not None:
            self._set_leadership(ready.leadership)
            if ready.leadership.role is not Role.LEADER:
                self._backlog.held_end_offset = Offset(0)
        if ready.token is not None:
            self._backlog.readies.append(Unwritten(ready))
            self._write()
        for message in ready.messages:
            self._send(message)
        if ready.committed is not None:
            self.raft.applied(ready.committed.last)
        if ready.leadership is not None:
            self._machine.leadership_changed(ready.leadership)
        if self.leadership.role is Role.LEADER:
            self._notify_committed(min(ready.commit_index, self.entries.last_index))
        elif ready.committed is not None:
            self._notify_committed(ready.committed.last)
        for read in ready.reads:
            cast(Callable[[LogIndex], None], read.context)(read.index)

    def _notify_committed(self, index: LogIndex) -> None:
        if index > self._committed_index:
            self._committed_index = index
            self._machine.committed(index, self.entries.end_offset_of(index))
            while self._controls and self._controls[0][0] <= index:
                self._machine.control(self._controls.popleft()[1])

    def _send(self, message: Message) -> None:
        blobs: Sequence[Blob] = ()
        if type(message) is Append and message.entries:
            try:
                blobs = self.entries.load(message.entries)
            except (CorruptMessage, StorageFailed, OffsetOutOfRange) as error:
                # Nothing is sent until the damage is repaired, rather than something wrong.
                if not isinstance(error, OffsetOutOfRange):
                    self._host.damaged(self)
                self.raft.append_was_not_sent()
                return
        self._host.send(self.group, message, blobs)

    # -- writing a Ready ---------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the backlog, oldest first, as far as the gate and the disk allow."""
        readies = self._backlog.readies
        try:
            while readies and self._write_one(readies[0]):
                readies.popleft()
        except StorageFailed as error:
            self._fail(error)
        if not readies and self._backlog.refusal is not None:
            self._backlog.refusal = None
            logger.warning("group %d has room again", self.group)

    def _write_one(self, unwritten: Unwritten) -> bool:
        """Returns True when all of it is written, False if the gate is shut or the disk is full."""
        ready = unwritten.ready
        if unwritten.begun_entries < 0:
            if not self._begin(ready):
                return False
            unwritten.begun_entries = 0
            if ready.hard_state is not None:
                unwritten.journal_position = self._host.raft_journal.position
        for entry in ready.entries[unwritten.begun_entries :]:
            if entry.index <= self.entries.last_index:
                self._truncate_superseded(entry)
            payload = entry.payload
            if not isinstance(payload, BatchPayload | BatchRef):
                self.entries.append_control(entry)
                if isinstance(payload, bytes):
                    self._controls.append((entry.index, payload))
            elif isinstance(payload, BatchPayload) and entry.index > self.entries.last_index:
                # Not in the log yet: from another leader, or held by this one.
                if not self.entries.is_gate_open:
                    self._host.sync_raft_journal(self)
                    return False
                if not self._write_batch(entry, payload):
                    return False
            unwritten.begun_entries += 1
        if ready.token is not None:
            position = max(unwritten.journal_position, self.entries.gate_position)
            self._await_sync(ready.token, position)
        return True

    def _begin(self, ready: Ready) -> bool:
        """Write the parts of a Ready that precede its entries, in their order. Returns False if the
        disk is full. It is begun again then; saving the same facts twice does no harm."""
        if ready.hard_state is not None:
            self._host.raft_journal.save_hard_state(self.group, ready.hard_state)
        if ready.snapshot is not None:
            try:
                self._machine.installing(ready.snapshot)
            except StorageFailed as error:
                self._wait_for_room(error)
                return False
            self.entries.install(ready.snapshot)
            self._committed_index = ready.snapshot.index
            self._tokens.clip(self.entries.log.log_end_offset)
            self._machine.installed(ready.snapshot)
        if ready.truncate_from is not None and ready.truncate_from <= self.entries.last_index:
            self._truncate_from(ready.truncate_from)
        return True

    def _write_batch(self, entry: Entry, payload: BatchPayload) -> bool:
        try:
            self.entries.append_batch(entry.index, entry.term, payload, self._host.now_ms())
        except StorageFailed as error:
            self._wait_for_room(error)
            return False
        if entry.term != self.leadership.term or self.leadership.role is not Role.LEADER:
            # The state machine appended this leadership's own batches itself.
            self._machine.appended(payload.header)
        return True

    def _truncate_superseded(self, entry: Entry) -> None:
        """A leader writes a batch before it proposes it. If it loses leadership in between, Raft
        never sees the batch, and the next leader's entry takes its place in the log."""
        if self.entries.term_at(entry.index) != entry.term:
            self._truncate_from(entry.index)

    def _truncate_from(self, index: LogIndex) -> None:
        end_offset = self.entries.truncate_from(index)
        while self._controls and self._controls[-1][0] >= index:
            self._controls.pop()
        self._tokens.clip(self.entries.log.log_end_offset)
        self._machine.truncated(end_offset)

    # -- syncs -------------------------------------------------------------------------------------

    def _await_sync(self, token: SyncToken, journal_position: int) -> None:
        log = self.entries.log
        unsynced = log.log_end_offset - log.synced_offset
        # With flush=never the token waits for a sync of the log only if `flush.messages` records are
        # unsynced (by default never): what Raft calls durable is then only written.
        end_offset = log.log_end_offset if unsynced >= self.flush_messages else Offset(0)
        self._tokens.add(token, journal_position, end_offset)
        if self._host.raft_journal.synced_position < journal_position:
            self._host.sync_raft_journal(self)
        if log.synced_offset < end_offset:
            self._host.sync_log(self)
        self._release()

    def _release(self) -> None:
        """Report to Raft every token whose Ready is as durable as it has to be (`_await_sync`)."""
        # The log's own sync point counts: a sync that was under way when the log was cut covers
        # bytes that are gone.
        token = self._tokens.take(
            self._host.raft_journal.synced_position, self.entries.log.synced_offset
        )
        if token is not None:
            self._inform_raft()
            self.raft.synced(token)
            self._touch()

    def raft_journal_synced(self) -> None:
        if self._failure is None:
            self._write()
            self._release()
            if self._tokens.waits_for_journal(self._host.raft_journal.synced_position):
                # Saved while the sync that just ended was under way.
                self._host.sync_raft_journal(self)

    def sync(self) -> Offset:
        """Make the log's records durable. Blocking."""
        return self.entries.log.sync()

    def share(self) -> Share | None:
        return self.entries.log.share()

    def synced(self, _: Offset) -> None:
        if self._failure is None:
            self.entries.save_places()
            self._release()

    def sync_failed(self, error: StorageFailed) -> None:
        self._fail(error)

    def _fail(self, error: StorageFailed) -> None:
        """Hand over leadership and stay silent: the content of the disk is unknown now."""
        if self._failure is not None:
            return
        self._failure = error
        self._inform_raft()
        self._machine.failed(error)
        self.raft.storage_failed()
        while (ready := self.raft.ready()) is not None:
            for message in ready.messages:
                self._send(message)
            if ready.leadership is not None:
                self._set_leadership(ready.leadership)
                self._machine.leadership_changed(ready.leadership)
