"""Replicas and their disks: a leader whose disk hangs or is full resigns if, and only if, other
members do better."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.replication.replica_rig import GROUP, Trio

from kafkaesque.broker.replication.replica import STUCK_TICKS_MAX
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG
from kafkaesque.broker.replication.rules.pending_readies import TRIED_EVERY_TICKS
from kafkaesque.broker.replication.sync_journal import LogLost
from kafkaesque.model.errors import StorageFailed


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Led by node 0."""
    trio = Trio(tmp_path)
    trio.elect(0)
    yield trio
    trio.close()


def stick(trio: Trio, *numbers: int) -> None:
    """Hang the disks of these nodes, then append something."""
    for number in numbers:
        trio.nodes[number].is_disk_stuck = True
    trio.append()


def test_leader_resigns_when_a_majority_has_on_disk_what_its_own_disk_lacks(
    trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    term = trio.term
    stick(trio, 0)
    trio.tick(STUCK_TICKS_MAX)
    # The two others are a majority without its disk, so the batch is committed.
    assert trio.nodes[0].machine.committed_end == 1
    assert (trio.leader, trio.term) == (0, term)
    trio.tick()
    assert trio.leader in (1, 2)
    assert "the disk is too slow to lead" in caplog.text
    # It does not become leader again while its disk hangs.
    trio.append()
    trio.tick(3 * STUCK_TICKS_MAX)
    assert trio.leader in (1, 2)
    assert trio.term == term + 1


def test_commit_is_reported_once_a_majority_has_it_without_the_leaders_disk(
    trio: Trio,
) -> None:
    """No tick, so no heartbeat that would carry it."""
    stick(trio, 0)
    trio.settle()
    assert trio.nodes[0].machine.committed_end == 1


@pytest.mark.parametrize("stuck", [(0, 1), (0, 2), (0, 1, 2)])
def test_leader_stays_if_no_majority_is_faster(trio: Trio, stuck: tuple[int, ...]) -> None:
    term = trio.term
    stick(trio, *stuck)
    assert trio.nodes[0].machine.committed_end == 0
    trio.tick(5 * STUCK_TICKS_MAX)
    assert (trio.leader, trio.term) == (0, term)
    for number in stuck:
        trio.nodes[number].is_disk_stuck = False
    trio.settle()
    assert trio.nodes[0].machine.committed_end == 1
    assert (trio.leader, trio.term) == (0, term)


@pytest.mark.parametrize("stuck", [(1,), (2,)])
def test_slow_follower_neither_delays_nor_deposes_anyone(
    trio: Trio, stuck: tuple[int, ...]
) -> None:
    term = trio.term
    stick(trio, *stuck)
    assert trio.nodes[0].machine.committed_end == 1
    trio.tick(5 * STUCK_TICKS_MAX)
    trio.append()
    assert trio.nodes[0].machine.committed_end == 2
    assert (trio.leader, trio.term) == (0, term)


def test_disk_that_is_slow_at_times_costs_no_leadership(trio: Trio) -> None:
    """The limit is for one sync, not for all of them together."""
    term = trio.term
    for _ in range(5):
        stick(trio, 0)
        trio.tick(STUCK_TICKS_MAX - 1)
        trio.nodes[0].is_disk_stuck = False
        trio.settle()
    assert (trio.leader, trio.term) == (0, term)


def test_leader_whose_disk_is_full_lets_the_others_write_and_one_of_them_lead(
    trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    full, term = trio.nodes[0], trio.term
    full.fill_disk()
    trio.append()
    assert full.replica.entries.last_index < full.replica.last_index, "it is held, not written"
    trio.tick(2)
    assert trio.leader in (1, 2)
    assert "the disk is too full to lead" in caplog.text
    trio.append(2)
    trio.tick(5 * TRIED_EVERY_TICKS)
    # No node waits for it or keeps requesting its vote.
    assert [node.machine.committed_end for node in trio.nodes[1:]] == [3, 3]
    assert (full.machine.committed_end, trio.term) == (0, term + 1)
    # As a follower it is to be reopened: thousands of groups could not wait in memory for room.
    assert len(full.machine.failures) == 1


def test_leader_stays_and_refuses_if_every_disk_is_full(trio: Trio) -> None:
    term = trio.term
    for node in trio.nodes:
        node.machine.waits_for_room = True
        node.fill_disk()
    trio.append()
    for _ in range(3):
        trio.tick(TRIED_EVERY_TICKS)
        with pytest.raises(StorageFailed, match="Input/output error"):
            trio.append()
    assert (trio.leader, trio.term) == (0, term)
    for node in trio.nodes:
        node.make_room()
    trio.tick(2 * TRIED_EVERY_TICKS)
    trio.append()
    assert (trio.leader, trio.term) == (0, term)
    assert [node.machine.failures for node in trio.nodes] == [[], [], []]
    trio.tick(3)  # a heartbeat informs the others
    assert [node.machine.committed_end for node in trio.nodes] == [2, 2, 2]


def test_follower_that_the_node_needs_waits_for_room_and_is_sent_a_bounded_amount(
    trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    full = trio.nodes[1]
    full.machine.waits_for_room = True
    full.fill_disk()
    trio.append(300)
    trio.tick(3 * TRIED_EVERY_TICKS)
    assert trio.nodes[0].machine.committed_end == 300
    assert (full.machine.committed_end, full.machine.failures) == (0, [])
    assert len(full.replica._backlog.readies) <= RAFT_CONFIG.inflight_messages_max
    full.make_room()
    trio.tick(2 * TRIED_EVERY_TICKS)
    assert full.machine.committed_end == 300
    assert "has room again" in caplog.text


def test_failed_log_is_not_waited_for(trio: Trio) -> None:
    trio.nodes[0].replica.entries.log._durability.failure = "fsync failed"
    with pytest.raises(StorageFailed, match="fsync failed"):
        trio.append()


def test_late_report_of_a_lost_log_does_not_affect_its_replacement(trio: Trio) -> None:
    lost, node = trio.nodes[1].replica.entries.log, trio.nodes[0]
    error = StorageFailed("fsync failed")
    node.replicas.logs_lost([LogLost(GROUP, lost, error)])
    assert node.machine.failures == []
    node.replicas.logs_lost([LogLost(GROUP, node.replica.entries.log, error)])
    assert node.machine.failures == [error]


def test_node_stops_when_the_raft_journal_is_found_failed(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the requester of a sync finds it: a group that is opened syncs the journal too
    (seed 2593)."""
    failures: list[BaseException] = []
    replicas = trio.nodes[0].replicas
    monkeypatch.setattr(replicas, "_fail", failures.append)
    replicas.tick()
    assert failures == []
    replicas.raft_journal._failure = "fsync failed"
    replicas.tick()
    assert [str(error) for error in failures] == ["fsync failed"]
