"""Bugs in the sync journal, which many logs share, and in its recovery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kafkaesque.broker.replication.rules.sync_journal_records import JournaledLog
from kafkaesque.broker.replication.sync_journal import LogLost, SyncJournal
from kafkaesque.broker.storage.log import Log
from kafkaesque.lab.sim.planted.bug import Patches, Planted
from kafkaesque.lab.sim.profile import ROUGH, Profile
from kafkaesque.lab.sim.schedule import MILLISECOND_US
from kafkaesque.model.ids import GroupId, Offset


def cuts_are_not_recorded(patches: Patches) -> None:
    def forgetful(self: SyncJournal, group: GroupId, offset: Offset) -> None:
        """Behaves as if the journal contained nothing of the log."""

    patches.set(SyncJournal, "_write_cut", forgetful)


def logs_hear_before_the_sync_journal_is_synced(patches: Patches) -> None:
    patches.set(SyncJournal, "_sync_file", lambda self, file: None)


def recovery_brings_back_what_was_cut(patches: Patches) -> None:
    patches.set(JournaledLog, "cut", lambda self, offset: None)


def sync_journal_goes_before_the_logs_are_synced(patches: Patches) -> None:
    def rash(self: SyncJournal, file: Any) -> list[LogLost]:
        file.ends.clear()
        return []

    patches.set(SyncJournal, "_sync_logs", rash)


def failed_replica_keeps_what_its_file_may_have_lost(patches: Patches) -> None:
    patches.set(Log, "file_synced_offset", property(lambda self: self.synced_offset))


_CUTS: Final = Profile(
    produce_interval_us=15 * MILLISECOND_US,
    fault_interval_us=60 * MILLISECOND_US,
    link_quality=ROUGH,
    journal_logs_min=1,
    weights={
        "power_cut": 6,
        "power_cut_within": 6,
        "kill": 2,
        "restart": 20,
        "isolate": 6,
        "cut_pair": 3,
        "heal": 8,
    },
)
_FAILURES: Final = replace(
    _CUTS, weights={"sync_failure": 8, "power_cut": 4, "restart": 12, "isolate": 2, "heal": 4}
)

SYNC_JOURNAL_BUGS: Final = [
    Planted(cuts_are_not_recorded, _CUTS, first_seed=30),
    Planted(logs_hear_before_the_sync_journal_is_synced, _CUTS),
    Planted(recovery_brings_back_what_was_cut, _CUTS, first_seed=35),
    Planted(sync_journal_goes_before_the_logs_are_synced, _CUTS),
    Planted(failed_replica_keeps_what_its_file_may_have_lost, _FAILURES),
]
