"""One group on this node: carries out what its Raft decides.

Everything runs on one thread and returns at once, except `sync`, which a flusher calls from a
thread of its own. `process` takes Readies until there are none: writes them (docs/RAFT.md has the
order), sends, tells the owner. What waits for a disk waits here:

- a *token* of Raft, until the journal and the log are synced as far as its Ready reached;
- a *batch* behind a control entry (or a cut), until the journal that holds it is synced: only
  then can a recovery count the indexes of the batches in the log (see `entry_log`);
- a batch for which there is no room, until there is (see `backlog`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.membership import MembershipChange
from kafkaesque.broker.raft.messages import Append, InstallSnapshot, Message
from kafkaesque.broker.raft.ready import Ready, Status
from kafkaesque.broker.raft.types import LogIndex, Membership, Proposal, Refusal, Role
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.replication.ready_writing import ReadyWriting
from kafkaesque.broker.replication.rules.backlog import Unwritten
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.broker.replication.rules.owner import Owner
from kafkaesque.broker.replication.surroundings import Surroundings
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.model.errors import (
    CorruptMessage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageFailed,
)
from kafkaesque.model.ids import GroupId, MemberId, Offset
from kafkaesque.model.setting import INT64_MAX
from kafkaesque.records.batch import BatchHeader

logger = logging.getLogger(__name__)

STUCK_TICKS_MAX = 10
"""A leader that waits so long for one sync gives up its leadership."""
IN_SYNC_LAG_ENTRIES_MAX = 1000
"""A replica that lacks more is not told to clients as in sync."""

_make_tuple = tuple.__new__  # 0.3 instead of 0.6 microseconds


class Replica(ReadyWriting):
    """See the module's text."""

    __slots__ = ("_failure", "_proposals", "leads_alone")

    def __init__(
        self,
        group: GroupId,
        raft: Raft,
        entries: EntryLog,
        around: Surroundings[Replica],
        owner: Owner,
        *,
        flush_messages: int = 1,
    ) -> None:
        super().__init__(group, raft, entries, around, owner, flush_messages)
        self.leads_alone = False
        """Leads, is the only member, and nothing is under way: so it was seen, and nothing but
        appends has happened since, of which Raft was not told yet. False says nothing."""
        self._proposals: list[Proposal] = []
        """Appended in this turn, and proposed together at its end, or before anything else that
        Raft hears of."""
        self._failure: StorageFailed | None = None

    # -- what the owner asks for -----------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Leads a term of which an entry is committed, so it knows all that is."""
        standing = self.standing
        return standing.is_confirmed and standing.role is Role.LEADER

    @property
    def is_without_room(self) -> bool:
        """What it was sent, or appended, waits for room on the disk."""
        return self._backlog.refusal is not None

    @property
    def next_offset(self) -> Offset:
        """Of the next batch, if this leader appends it. Behind the log's end while some are held."""
        return max(self.entries.log.log_end_offset, self._backlog.held_end_offset)

    def append(self, records: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """Write a batch, which is stamped with `next_offset` and our term, and replicate it. True
        if it is committed at once; otherwise `committed` will tell.

        Raises NotLeaderOrFollower, NotEnoughReplicas or StorageFailed; then nothing has changed.
        """
        if self.leads_alone or self._sees_itself_alone():
            # Without a sync that is due, a write is a commit. Raft is told in passing.
            entries, due = self.entries, self.flush_messages
            if due == INT64_MAX or header.next_offset - entries.log.synced_offset < due:
                batch = _make_tuple(BatchPayload, (records, header))
                next_index = LogIndex(entries.last_index + 1)
                entries.append_batch(next_index, self.standing.term, batch, now_ms)
                return True
            self._be_as_others()
        size_bytes = header.size_bytes
        for proposal in self._proposals:
            size_bytes += proposal.size_bytes
        self._refuse(self.raft.refusal(size_bytes))
        index = LogIndex(self.raft.last_index + len(self._proposals) + 1)
        if self.entries.last_index + 1 == index and self._is_gate_open:
            payload = self._write_own(index, records, header, now_ms)
        else:
            self._backlog.refuse_if_full()
            payload = self._hold(records, header)
        self._proposals.append(Proposal(payload, header.size_bytes))
        self._touch()
        return False

    def _write_own(
        self, index: LogIndex, records: memoryview, header: BatchHeader, now_ms: int
    ) -> BatchPayload | BatchRef:
        is_alone = self.is_alone
        payload = BatchPayload(records if is_alone else bytes(records), header)
        try:
            written = self.entries.append_batch(index, self.standing.term, payload, now_ms)
        except StorageFailed as error:
            self._refused(error)
            return self._hold(records, header)
        # Alone, the caller's memory is its own again: whoever joins later is served from the log.
        return written if is_alone else payload

    def _hold(self, records: memoryview, header: BatchHeader) -> BatchPayload:
        self._backlog.held_end_offset = header.next_offset
        return BatchPayload(bytes(records), header)

    def _sees_itself_alone(self) -> bool:
        if self.flush_messages == 1:
            return False  # every write is synced before it counts
        is_idle = not self._proposals and self._is_gate_open and self.is_leader
        self.leads_alone = is_idle and self.raft.may_append_alone
        return self.leads_alone

    def _touch(self) -> None:
        """Something else than an append alone: `process` it soon."""
        self._be_as_others()
        self._around.touch(self)

    def _be_as_others(self) -> None:
        """Tell Raft of what was appended without it."""
        if self.leads_alone:
            self.leads_alone = False
            if self.entries.last_index > self._committed_index:
                self._committed_index = self.entries.last_index
                self.raft.append_alone(self._committed_index)

    def _tell_raft(self) -> None:
        """Of what was appended: it must not think of the log otherwise than it is."""
        self._be_as_others()
        if self._proposals:
            proposals, self._proposals = self._proposals, []
            self.raft.propose(proposals)

    @property
    def last_index(self) -> LogIndex:
        """Of the last entry that was appended here, or told by a leader."""
        if self.leads_alone:
            return self.entries.last_index
        return LogIndex(self.raft.last_index + len(self._proposals))

    def propose_control(self, payload: bytes) -> LogIndex:
        """Replicate a fact about the group that takes no offset. Raises as `append` does."""
        self._tell_raft()
        self._refuse(self.raft.refusal(len(payload)))
        index = self.raft.propose((Proposal(payload, len(payload)),))
        self._touch()
        return index

    def propose_membership(self, change: MembershipChange) -> LogIndex:
        """Raises Refused."""
        self._tell_raft()
        index = self.raft.propose_membership(change)
        self._touch()
        return index

    def read_index(self, tell: Callable[[LogIndex], None]) -> None:
        """Ask which index a linearizable read has to wait for; `tell` is called from `process`
        once a majority has confirmed this leader. Never if leadership is lost before: the owner
        hears of that by `stands`. Raises Refused."""
        self._tell_raft()
        self.raft.read_index(tell)
        self._touch()

    def transfer_leadership(self, target: MemberId) -> None:
        """Raises Refused."""
        self._tell_raft()
        self.raft.transfer_leadership(target)
        self._touch()

    def campaign(self) -> None:
        self._tell_raft()
        self.raft.campaign()
        self._touch()

    def resign(self) -> None:
        self._tell_raft()
        self.raft.resign()
        self._touch()

    def status(self) -> Status:
        self._tell_raft()
        return self.raft.status()

    @property
    def membership(self) -> Membership:
        return self.raft.membership

    def has_committed(self, index: LogIndex) -> bool:
        """Whether the entry is in the log and committed, as far as this node knows."""
        self._tell_raft()
        return self.entries.first_index <= index <= self._committed_index

    def is_held_by(self, index: LogIndex, count: int) -> bool:
        """Whether so many voters, this leader included, have the entry on disk."""
        status = self.status()
        held = [status.durable_index] if status.node_id in status.membership.voters else []
        held += [peer.match_index for peer in status.peers.values() if not peer.is_learner]
        return sum(match >= index for match in held) >= count

    def in_sync(self) -> list[MemberId]:
        """Voters that answer and lack little; empty unless leader."""
        return self.status().in_sync(IN_SYNC_LAG_ENTRIES_MAX)

    # -- what the node brings ----------------------------------------------------------------------

    def step(self, message: Message) -> None:
        if type(message) is InstallSnapshot and self.entries.lacks_prefix(message.snapshot):
            self._around.fetch_prefix(self, message)
        elif self._failure is None:
            self._tell_raft()
            self.raft.step(message)
            self._touch()

    def tick(self) -> None:
        self._tell_raft()
        is_due = self.raft.tick()
        if self._backlog.tick() and self._failure is None:
            self._write()
        # A successor was told to lead and did not come: with that word on its way nobody's silence is
        # certain for the rest of the term, and a new term is better than a leader that may not serve.
        is_forsaken = self.raft.has_handed_over and not self.raft.is_transferring
        if self._is_disk_too_slow() or is_forsaken:
            self.raft.resign()
            is_due = True
        if is_due:
            self._touch()

    def _is_disk_too_slow(self) -> bool:
        """Of a leader, beside those of the others: let one of them lead. If all are slow, nobody does
        better: a thousand groups that resign because the machine is busy make it busier."""
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
        self._tell_raft()
        self.raft.peer_unreachable(member)
        self._touch()

    def peer_reachable(self, member: MemberId) -> None:
        self._tell_raft()
        self.raft.peer_reachable(member)
        self._touch()

    def process(self) -> None:
        """Do all there is to do now."""
        self._tell_raft()
        while self._failure is None and (ready := self.raft.ready()) is not None:
            self._handle(ready)
            if ready.is_only_messages:
                # Sending changes nothing here, so there is no more; most Readies are a heartbeat's.
                break
        if self.standing.role is Role.LEADER and self._failure is None:
            # Others may hold on disk what our own has not, and no Ready tells of that.
            self._tell_committed(min(self.raft.commit_index, self.entries.last_index))

    def _handle(self, ready: Ready) -> None:
        if ready.standing is not None:
            self.standing = ready.standing
            if ready.standing.role is not Role.LEADER:
                self._backlog.held_end_offset = Offset(0)
        if ready.token is not None:
            self._backlog.readies.append(Unwritten(ready))
            self._write()
        for message in ready.messages:
            self._send(message)
        if ready.committed is not None:
            self.raft.applied(ready.committed.last)
        if ready.standing is not None:
            self._owner.stands(ready.standing)
        if self.standing.role is Role.LEADER:
            self._tell_committed(min(ready.commit_index, self.entries.last_index))
        elif ready.committed is not None:
            self._tell_committed(ready.committed.last)
        for read in ready.reads:
            cast(Callable[[LogIndex], None], read.context)(read.index)

    def _tell_committed(self, index: LogIndex) -> None:
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
            except (CorruptMessage, StorageFailed, OffsetOutOfRange) as error:
                # Until it is repaired nothing goes, rather than something wrong; nor what is dropped.
                if not isinstance(error, OffsetOutOfRange):
                    self._around.damaged(self)
                self.raft.append_was_not_sent()
                return
        self._around.send(self.group, message, blobs)

    # -- syncs -------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Tell Raft of every token whose Ready is durable."""
        # The log is asked anew: a sync that was under way when it was cut speaks for what is gone.
        token = self._tokens.take(
            self._around.journal.synced_position, self.entries.log.synced_offset
        )
        if token is not None:
            self._tell_raft()
            self.raft.synced(token)
            self._touch()

    def journal_synced(self) -> None:
        if self._failure is None:
            self._write()
            self._release()
            if self._tokens.waits_for_journal(self._around.journal.synced_position):
                # Saved while the sync that just ended was under way.
                self._around.sync_journal(self)

    def sync(self) -> Offset:
        """Blocking: the log's records become durable."""
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
        """Whatever the disk now holds, this object knows it no more: say farewell and be silent."""
        if self._failure is not None:
            return
        self._failure = error
        self._tell_raft()
        self._proposals.clear()
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
