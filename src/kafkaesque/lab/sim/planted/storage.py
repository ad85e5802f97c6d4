"""Bugs in the code that drives the rules: replicas, logs, journal, producers' state, the node itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.producers import ProducerTable, WrittenBatch
from kafkaesque.broker.raft.types import LogIndex, Restart
from kafkaesque.broker.replication import raft_journal
from kafkaesque.broker.replication.entry_index import EntryIndex
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.journal_records import (
    GroupFacts,
    HardStateSaved,
    records_of,
)
from kafkaesque.broker.replication.rules.pending_readies import Backlog, Unwritten
from kafkaesque.broker.storage import recovery
from kafkaesque.broker.storage.chain import SegmentChain
from kafkaesque.broker.storage.durability import Durability
from kafkaesque.broker.storage.scanning import iter_headers
from kafkaesque.lab.sim.node import SimulatedNode
from kafkaesque.lab.sim.planted.bug import Patches, Planted
from kafkaesque.lab.sim.profile import CALM, ROUGH, Profile
from kafkaesque.lab.sim.schedule import MILLISECOND_US
from kafkaesque.model.errors import NotLeaderOrFollower, StorageFailed
from kafkaesque.model.ids import GroupId, LeaderEpoch, Offset
from kafkaesque.records.batch import BatchHeader


def tokens_are_released_before_the_sync(patches: Patches) -> None:
    def rash(self: Replica) -> None:
        token = self._tokens.take(2**62, Offset(2**62))
        if token is not None:
            self.raft.synced(token)
            self._host.touch(self)

    patches.set(Replica, "_release", rash)


def batches_do_not_wait_for_control_entries(patches: Patches) -> None:
    patches.set(EntryLog, "is_gate_open", property(lambda self: True))


def retries_are_not_recognised(patches: Patches) -> None:
    def forgetful(
        self: ProducerTable, header: BatchHeader, guard: object = None
    ) -> WrittenBatch | None:
        return None

    patches.set(ProducerTable, "judge", forgetful)


def new_leader_forgets_the_producers(patches: Patches) -> None:
    leadership_changed = Partition.leadership_changed

    def forgetful(self: Partition, leadership: Any) -> None:
        leadership_changed(self, leadership)
        if self.replica.is_leader:
            self.producers = ProducerTable(Offset(0))

    patches.set(Partition, "leadership_changed", forgetful)


def batches_carry_the_epoch_of_before(patches: Patches) -> None:
    late = property(lambda self: LeaderEpoch(max(1, self.replica.leadership.term - 1)))
    patches.set(Partition, "leader_epoch", late)


def clients_hear_of_what_is_not_committed(patches: Patches) -> None:
    def rash(self: Replica, _: LogIndex) -> None:
        index = self.entries.last_index
        if index > self._committed_index:
            self._committed_index = index
            self._machine.committed(index, self.entries.end_offset_of(index))

    patches.set(Replica, "_notify_committed", rash)


def any_leader_serves_reads(patches: Patches) -> None:
    patches.set(ReplicaSet, "may_serve", lambda self, replica: replica.is_leader)


def wiped_node_returns_under_its_old_id(patches: Patches) -> None:
    def forgetful(self: SimulatedNode) -> None:
        self.disk.wipe()
        self.is_broken = False

    patches.set(SimulatedNode, "replace_disk", forgetful)


def entries_beside_a_segment_are_one_too_high(patches: Patches) -> None:
    take = EntryIndex._take

    def shifted(self: EntryIndex, number: int, block: Any) -> None:
        take(self, number, block)
        if self.base_offset > 0:
            self.first_index = LogIndex(self.first_index + 1)

    patches.set(EntryIndex, "_take", shifted)


def checkpoint_forgets_the_vote(patches: Patches) -> None:
    def forgetful(group: GroupId, facts: GroupFacts) -> Iterator[Any]:
        for record in records_of(group, facts):
            if not isinstance(record, HardStateSaved):
                yield record

    patches.set(raft_journal, "records_of", forgetful)


def journal_is_not_synced(patches: Patches) -> None:
    patches.set(RaftJournal, "_sync_file", lambda self, file: None)


def cut_of_control_entries_is_not_saved(patches: Patches) -> None:
    def forgetful(self: RaftJournal, group: GroupId, index: Any) -> None:
        control = self._groups[group].control
        while control and control[-1].index >= index:
            control.pop()

    patches.set(RaftJournal, "cut_from", forgetful)


def names_of_new_segments_are_not_synced(patches: Patches) -> None:
    never = property(lambda self: False, lambda self, value: None)
    patches.set(SegmentChain, "has_new_name", never)


def torn_batches_are_kept(patches: Patches) -> None:
    patches.set(recovery, "iter_verified", iter_headers)


def sync_point_is_not_lowered_before_a_cut(patches: Patches) -> None:
    patches.set(Durability, "move_back", lambda self, point: None)


def failed_sync_is_taken_for_done(patches: Patches) -> None:
    def rash(self: Replica) -> Offset:
        log = self.entries.log
        try:
            return sync(self)
        except StorageFailed:
            log._durability.failure = None
            return log.sync()

    sync = Replica.sync
    patches.set(Replica, "sync", rash)


def restart_takes_all_for_committed(patches: Patches) -> None:
    restart = EntryLog.restart

    def rash(self: EntryLog) -> Restart:
        found = restart(self)
        return Restart(found.hard_state, found.memberships, self.last_index, found.applied_index)

    patches.set(EntryLog, "restart", rash)


def producers_outlive_a_cut(patches: Patches) -> None:
    patches.set(Partition, "truncated", lambda self, end_offset: None)

    def lose(self: Partition) -> None:
        self._appended.clear()
        self._commit_waiters.fail_all(NotLeaderOrFollower("not led any more"))

    patches.set(Partition, "_lose_leadership", lose)


def what_waits_for_room_is_acknowledged(patches: Patches) -> None:
    write_one = Replica._write_one

    def rash(self: Replica, unwritten: Unwritten) -> bool:
        is_written = write_one(self, unwritten)
        if self._backlog.refusal is not None and unwritten.ready.token is not None:
            self.raft.synced(unwritten.ready.token)
            self._host.touch(self)
        return is_written

    patches.set(Replica, "_write_one", rash)


def room_is_not_looked_for_again(patches: Patches) -> None:
    patches.set(Backlog, "tick", lambda self: False)


_RESTARTS: Final = Profile(
    produce_interval_us=15 * MILLISECOND_US,
    fault_interval_us=60 * MILLISECOND_US,
    weights={
        "power_cut": 4,
        "power_cut_within": 8,
        "kill": 3,
        "restart": 20,
        "isolate": 2,
        "heal": 4,
    },
)
_SLOW: Final = replace(
    _RESTARTS, weights={"power_cut": 6, "restart": 16, "slow_disk": 12, "isolate": 3, "heal": 5}
)
_LEADERS: Final = Profile(
    produce_interval_us=15 * MILLISECOND_US,
    fault_interval_us=100 * MILLISECOND_US,
    link_quality=CALM,
    weights={"isolate": 4, "cut_pair": 3, "heal": 5, "pause": 4, "resume": 5, "transfer": 2},
)
_DISKS: Final = Profile(
    produce_interval_us=15 * MILLISECOND_US,
    link_quality=ROUGH,
    weights={"sync_failure": 6, "power_cut": 4, "restart": 12, "wipe": 4, "isolate": 2, "heal": 4},
)
_FULL: Final = replace(
    _RESTARTS,
    weights={"full": 8, "room": 8, "power_cut": 3, "restart": 12, "isolate": 2, "heal": 4},
)

STORAGE_BUGS: Final = [
    Planted(tokens_are_released_before_the_sync),
    Planted(batches_do_not_wait_for_control_entries, _SLOW),
    Planted(retries_are_not_recognised, first_seed=1),
    Planted(new_leader_forgets_the_producers, _LEADERS),
    Planted(batches_carry_the_epoch_of_before, _LEADERS),
    Planted(clients_hear_of_what_is_not_committed, _LEADERS),
    Planted(any_leader_serves_reads, _LEADERS, first_seed=2),
    Planted(wiped_node_returns_under_its_old_id, _DISKS, first_seed=4),
    Planted(entries_beside_a_segment_are_one_too_high, _RESTARTS, first_seed=1),
    Planted(checkpoint_forgets_the_vote, _RESTARTS),
    Planted(journal_is_not_synced),
    Planted(cut_of_control_entries_is_not_saved, _RESTARTS, first_seed=45),
    Planted(names_of_new_segments_are_not_synced, _RESTARTS),
    Planted(torn_batches_are_kept, _RESTARTS, first_seed=10),
    Planted(sync_point_is_not_lowered_before_a_cut, _RESTARTS),
    Planted(failed_sync_is_taken_for_done, _DISKS, first_seed=5),
    Planted(restart_takes_all_for_committed, _RESTARTS),
    Planted(producers_outlive_a_cut, _LEADERS, first_seed=9),
    Planted(what_waits_for_room_is_acknowledged, _FULL, first_seed=1),
    Planted(room_is_not_looked_for_again, _FULL, first_seed=4),
]
