"""One group on this node: carries out what its Raft decides.

Everything runs on one thread and returns at once, except `sync`, which a flusher calls from a
thread of its own. `process` takes Readies until there are none: writes them (docs/RAFT.md has the
order), sends, tells the owner. What waits for a disk waits here:

- a *token* of Raft, until the journal and the log are synced as far as its Ready reached;
- a *batch* behind a control entry (or a cut), until the journal that holds it is synced: only
  then can a recovery count the indexes of the batches in the log (see `entry_log`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kafkaesque.model.errors import (
    CorruptMessage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageFailed,
)
from kafkaesque.model.ids import GroupId, MemberId, Offset
from kafkaesque.raft.core import Raft
from kafkaesque.raft.membership import MembershipChange
from kafkaesque.raft.messages import Append, Message
from kafkaesque.raft.ready import Ready, Standing, Status
from kafkaesque.raft.types import (
    NO_INDEX,
    LogIndex,
    Membership,
    Proposal,
    Refusal,
    Role,
    Snapshot,
    SyncToken,
)
from kafkaesque.records.batch import BatchHeader
from kafkaesque.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.replication.raft_journal import RaftJournal

logger = logging.getLogger(__name__)

STUCK_TICKS_MAX = 10
"""A leader that waits so long for one sync gives up its leadership."""

IN_SYNC_LAG_ENTRIES_MAX = 1000
"""A replica that lacks more is not told to clients as in sync."""

Blob = bytes | bytearray | memoryview | None


class Owner(Protocol):
    """Whoever keeps what the group's entries amount to. Called from `process`."""

    def stands(self, standing: Standing) -> None:
        """Who leads has changed, or is now certain. No longer leading: what was appended and is
        not committed may vanish."""

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        """Everything up to entry `index`, which ends before `end_offset`, is committed. A leader
        hears of it as soon as that is so, others when it is on their own disk too."""

    def appended(self, header: BatchHeader) -> None:
        """A batch of another leader was written here; it may still be cut again."""

    def control(self, payload: bytes) -> None:
        """What `propose_control` was given, on any member, is committed."""

    def cut(self, end_offset: Offset) -> None:
        """The log lost what lay at and behind `end_offset`; none of it was committed."""

    def installing(self, snapshot: Snapshot) -> None:
        """The log is about to be replaced: keep, durably, what the snapshot says of it."""

    def installed(self, snapshot: Snapshot) -> None:
        """The log was replaced: it is empty and goes on behind `snapshot`."""

    def failed(self, error: StorageFailed) -> None:
        """The disk refused. This replica is dead; another one may be opened in its place."""


class Surroundings(Protocol):
    """What the replicas of a node share; `replica_set` has the real one."""

    @property
    def journal(self) -> RaftJournal: ...

    def touch(self, replica: Replica) -> None:
        """Call its `process` soon."""

    def sync_journal(self, replica: Replica) -> None:
        """Sync the journal soon and call its `journal_synced`."""

    def sync_log(self, replica: Replica) -> None:
        """Call its `sync` from a worker thread soon, then `synced` or `sync_failed`."""

    def send(self, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None: ...

    def damaged(self, replica: Replica) -> None:
        """A batch of its log is not what was written."""

    def now_ms(self) -> int: ...


class _Syncing(NamedTuple):
    """What must be durable before Raft hears of `token`."""

    token: SyncToken
    journal_position: int
    end_offset: Offset


class Replica:
    """See the module's text."""

    __slots__ = (
        "_around",
        "_begun_entries",
        "_committed_index",
        "_controls",
        "_failure",
        "_held_end_offset",
        "_owner",
        "_stuck",
        "_syncing",
        "_unwritten",
        "entries",
        "flush_messages",
        "group",
        "raft",
        "standing",
    )

    def __init__(
        self,
        group: GroupId,
        raft: Raft,
        entries: EntryLog,
        around: Surroundings,
        owner: Owner,
        *,
        flush_messages: int = 1,
    ) -> None:
        self.group = group
        self.raft = raft
        self.entries = entries
        self.flush_messages = flush_messages
        """Batches are synced when so many records are not; 1 syncs each before it counts."""
        self.standing: Standing = raft.standing
        self._around = around
        self._owner = owner
        self._unwritten: deque[Ready] = deque()
        """Readies with something to write, the first perhaps in part."""
        self._begun_entries = -1
        """How many entries of the first unwritten Ready are written; -1 before it is begun."""
        self._held_end_offset = Offset(0)
        """Behind the batches that were proposed and wait for the gate."""
        self._syncing: deque[_Syncing] = deque()
        self._committed_index = NO_INDEX
        """The owner was told up to here."""
        self._stuck: tuple[SyncToken | None, int] = None, 0
        """What waited longest for the disk at the last tick, and for how many ticks by then."""
        self._controls: deque[tuple[LogIndex, bytes]] = deque(entries.pending_controls())
        """Control entries of the owner's that it was not told of yet."""
        self._failure: StorageFailed | None = None

    # -- what the owner asks for -----------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Leads a term of which an entry is committed, so it knows all that is."""
        role, _, _, is_confirmed = self.standing
        return is_confirmed and role is Role.LEADER

    @property
    def is_alone(self) -> bool:
        """No other member: nothing is ever sent."""
        return len(self.raft.membership.nodes) == 1

    @property
    def next_offset(self) -> Offset:
        """Of the next batch, if this leader appends it."""
        return max(self.entries.next_offset, self._held_end_offset)

    def append(self, records: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Write a batch, which is stamped with `next_offset` and our term, and replicate it.

        Raises NotLeaderOrFollower, NotEnoughReplicas or StorageFailed; then nothing has changed.
        """
        self._refuse(self.raft.refusal(header.size_bytes))
        index = LogIndex(self.raft.last_index + 1)
        payload: BatchPayload | BatchRef
        if self.entries.last_index + 1 == index and self._is_gate_open:
            payload = BatchPayload(records if self.is_alone else bytes(records), header)
            written = self.entries.append_batch(index, self.standing.term, payload, now_ms)
            if self.is_alone:
                # The caller's memory is its own again: whoever joins later is served from the log.
                payload = written
        else:
            payload = BatchPayload(bytes(records), header)
            self._held_end_offset = header.next_offset
        self.raft.propose((Proposal(payload, header.size_bytes),))
        self._around.touch(self)

    @property
    def _is_gate_open(self) -> bool:
        return self._is_journal_synced(self.entries.gate_position)

    def propose_control(self, payload: bytes) -> LogIndex:
        """Replicate a fact about the group that takes no offset. Raises as `append` does."""
        self._refuse(self.raft.refusal(len(payload)))
        index = self.raft.propose((Proposal(payload, len(payload)),))
        self._around.touch(self)
        return index

    def propose_membership(self, change: MembershipChange) -> LogIndex:
        """Raises Refused."""
        index = self.raft.propose_membership(change)
        self._around.touch(self)
        return index

    def transfer_leadership(self, target: MemberId) -> None:
        """Raises Refused."""
        self.raft.transfer_leadership(target)
        self._around.touch(self)

    def campaign(self) -> None:
        self.raft.campaign()
        self._around.touch(self)

    def resign(self) -> None:
        self.raft.resign()
        self._around.touch(self)

    def status(self) -> Status:
        return self.raft.status()

    @property
    def membership(self) -> Membership:
        return self.raft.membership

    def has_committed(self, index: LogIndex) -> bool:
        """Whether the entry is in the log and committed, as far as this node knows."""
        return self.entries.first_index <= index <= self._committed_index

    def is_held_by(self, index: LogIndex, count: int) -> bool:
        """Whether so many voters, this leader included, have the entry on disk."""
        status = self.raft.status()
        held = [status.durable_index] if status.node_id in status.membership.voters else []
        held += [peer.match_index for peer in status.peers.values() if not peer.is_learner]
        return sum(match >= index for match in held) >= count

    def in_sync(self) -> list[MemberId]:
        """Voters that answer and lack little; empty unless leader."""
        return self.raft.status().in_sync(IN_SYNC_LAG_ENTRIES_MAX)

    # -- what the node brings ----------------------------------------------------------------------

    def step(self, message: Message) -> None:
        if self._failure is None:
            self.raft.step(message)
            self._around.touch(self)

    def tick(self) -> None:
        self.raft.tick()
        if self.raft.has_handed_over and not self.raft.is_transferring:
            # The successor did not come. With that word on its way nobody's silence can be relied
            # on for the rest of the term, so a new term is better than a leader that may not serve.
            self.raft.resign()
        self._judge_disk()
        self._around.touch(self)

    def _judge_disk(self) -> None:
        """A leader whose own disk does not keep up makes everyone wait: let another one lead."""
        oldest = self._syncing[0].token if self._syncing else None
        token, ticks = self._stuck
        ticks = ticks + 1 if oldest is not None and oldest == token else 0
        self._stuck = oldest, ticks
        if ticks >= STUCK_TICKS_MAX and self.is_leader and len(self.in_sync()) > 1:
            logger.warning("group %d: the disk is too slow to lead", self.group)
            self._stuck = None, 0
            self.raft.resign()

    def peer_unreachable(self, member: MemberId) -> None:
        self.raft.peer_unreachable(member)
        self._around.touch(self)

    def peer_reachable(self, member: MemberId) -> None:
        self.raft.peer_reachable(member)
        self._around.touch(self)

    def process(self) -> None:
        """Do all there is to do now."""
        while self._failure is None and (ready := self.raft.ready()) is not None:
            self._handle(ready)

    def _handle(self, ready: Ready) -> None:
        if ready.standing is not None:
            self.standing = ready.standing
            if ready.standing.role is not Role.LEADER:
                self._held_end_offset = Offset(0)
        if ready.token is not None:
            self._unwritten.append(ready)
            self._write()
        for message in ready.messages:
            self._send(message)
        if ready.committed is not None:
            self.raft.applied(ready.committed.last)
        if ready.standing is not None:
            self._owner.stands(ready.standing)
        self._tell_committed(ready)

    def _tell_committed(self, ready: Ready) -> None:
        if self.standing.role is Role.LEADER:
            index = min(ready.commit_index, self.entries.last_index)
        elif ready.committed is not None:
            index = ready.committed.last
        else:
            return
        if index > self._committed_index:
            self._committed_index = index
            self._owner.committed(index, self.entries.end_offset_of(index))
            while self._controls and self._controls[0][0] <= index:
                self._owner.control(self._controls.popleft()[1])

    def _send(self, message: Message) -> None:
        blobs: Sequence[Blob] = ()
        if type(message) is Append and message.entries:
            try:
                blobs = self.entries.load(message.entries)
            except (CorruptMessage, StorageFailed):
                # Until it is repaired this follower gets nothing, rather than something wrong.
                self._around.damaged(self)
                return
            except OffsetOutOfRange:
                return  # dropped since the message was made: the next one will be a snapshot
        self._around.send(self.group, message, blobs)

    # -- writing -----------------------------------------------------------------------------------

    def _write(self) -> None:
        """As far as the gate lets it."""
        try:
            while self._unwritten and self._write_one(self._unwritten[0]):
                self._unwritten.popleft()
                self._begun_entries = -1
        except StorageFailed as error:
            self._fail(error)

    def _write_one(self, ready: Ready) -> bool:
        """True when all of it is written; False if the gate is shut."""
        if self._begun_entries < 0:
            self._begin(ready)
        for entry in ready.entries[self._begun_entries :]:
            payload = entry.payload
            if not isinstance(payload, BatchPayload | BatchRef):
                self.entries.append_control(entry)
                if isinstance(payload, bytes):
                    self._controls.append((entry.index, payload))
            elif isinstance(payload, BatchPayload) and entry.index > self.entries.last_index:
                if not self._is_gate_open:
                    self._around.sync_journal(self)
                    return False
                self.entries.append_batch(entry.index, entry.term, payload, self._around.now_ms())
                if self.standing.role is not Role.LEADER:
                    self._owner.appended(payload.header)
            self._begun_entries += 1
        if ready.token is not None:
            self._await_sync(ready.token)
        return True

    def _begin(self, ready: Ready) -> None:
        """The parts of a Ready that come before its entries, in their order."""
        journal = self._around.journal
        self._begun_entries = 0
        if ready.hard_state is not None:
            journal.save_hard_state(self.group, ready.hard_state)
        if ready.snapshot is not None:
            self._owner.installing(ready.snapshot)
            self.entries.install(ready.snapshot)
            self._committed_index = ready.snapshot.index
            self._owner.installed(ready.snapshot)
        if ready.truncate_from is not None and ready.truncate_from <= self.entries.last_index:
            end_offset = self.entries.truncate_from(ready.truncate_from)
            while self._controls and self._controls[-1][0] >= ready.truncate_from:
                self._controls.pop()
            self._owner.cut(end_offset)

    def _await_sync(self, token: SyncToken) -> None:
        journal, log = self._around.journal, self.entries.log
        unsynced = log.log_end_offset - log.synced_offset
        end_offset = log.log_end_offset if unsynced >= self.flush_messages else Offset(0)
        self._syncing.append(_Syncing(token, journal.position, end_offset))
        if journal.synced_position < journal.position:
            self._around.sync_journal(self)
        if log.synced_offset < end_offset:
            self._around.sync_log(self)
        self._release()

    def _release(self) -> None:
        """Tell Raft of every token whose Ready is durable."""
        journal_position = self._around.journal.synced_position
        # Asked anew: a sync that was under way when the log was cut speaks for what is gone.
        synced_offset = self.entries.log.synced_offset
        token = None
        while self._syncing:
            first = self._syncing[0]
            if first.journal_position > journal_position or first.end_offset > synced_offset:
                break
            token = self._syncing.popleft().token
        if token is not None:
            self.raft.synced(token)
            self._around.touch(self)

    def journal_synced(self) -> None:
        if self._failure is None:
            self._write()
            self._release()
            if self._syncing and not self._is_journal_synced(self._syncing[-1].journal_position):
                # Saved while the sync that just ended was under way.
                self._around.sync_journal(self)

    def _is_journal_synced(self, position: int) -> bool:
        return self._around.journal.synced_position >= position

    def sync(self) -> Offset:
        """Blocking: the log's records become durable."""
        return self.entries.log.sync()

    def synced(self, _: Offset) -> None:
        if self._failure is None:
            self._release()

    def sync_failed(self, error: StorageFailed) -> None:
        self._fail(error)

    def _fail(self, error: StorageFailed) -> None:
        """Whatever the disk now holds, this object knows it no more: say farewell and be silent."""
        if self._failure is not None:
            return
        self._failure = error
        self._owner.failed(error)
        self.raft.storage_failed()
        while (ready := self.raft.ready()) is not None:
            for message in ready.messages:
                self._send(message)
            if ready.standing is not None:
                self.standing = ready.standing
                self._owner.stands(ready.standing)

    def _refuse(self, refusal: Refusal | None) -> None:
        if refusal is None and self.is_leader:
            return
        if refusal is Refusal.OVERLOADED:
            raise NotEnoughReplicas(f"group {self.group} has too much that no majority holds yet")
        raise NotLeaderOrFollower(f"group {self.group}: {(refusal or Refusal.NOT_LEADER).value}")
