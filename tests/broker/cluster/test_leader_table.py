"""Announcements of leaders: the newest holds, in whatever order they come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.cluster.rules.leader_table import (
    Announcement,
    LeaderTable,
    decode_announcements,
    encode_announcements,
)
from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import GroupId, LeaderEpoch, NodeId

GROUP = GroupId(16)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def announcement(
    epoch: int, revision: int = 0, node: NodeId = ONE, group: GroupId = GROUP
) -> Announcement:
    return Announcement(group, LeaderEpoch(epoch), revision, node, (node,))


def table(*deleted: GroupId) -> LeaderTable:
    return LeaderTable(deleted.__contains__)


# One leader an epoch, and one state a revision of it: what Raft and `lead` see to.
HISTORY = [
    announcement(epoch, revision, NodeId(epoch % 3)) for epoch in range(4) for revision in range(3)
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(HISTORY), min_size=1))
def test_newest_announcement_wins_in_any_order(received: list[Announcement]) -> None:
    leaders = table()
    news = [item for one in received for item in leaders.merge([one])]
    assert leaders.get(GROUP) == max(received, key=lambda item: item.age)
    assert [item.age for item in news] == sorted({item.age for item in news})


def test_only_news_comes_out_of_a_batch() -> None:
    leaders = table()
    assert leaders.merge([announcement(5), announcement(5), announcement(4, 9)]) == [
        announcement(5)
    ]
    assert leaders.merge([announcement(5), announcement(5, 1)]) == [announcement(5, 1)]


def test_leader_announces_changes_of_its_epoch_with_growing_revisions() -> None:
    leaders = table()
    first = leaders.lead(GROUP, LeaderEpoch(3), ONE, [TWO, ONE])
    assert first == Announcement(GROUP, LeaderEpoch(3), 0, ONE, (ONE, TWO))
    assert leaders.lead(GROUP, LeaderEpoch(3), ONE, [ONE, TWO]) is None
    second = leaders.lead(GROUP, LeaderEpoch(3), ONE, [ONE])
    assert second is not None
    assert second.age == (3, 1)
    third = leaders.lead(GROUP, LeaderEpoch(4), ONE, [ONE])
    assert third is not None
    assert third.age == (4, 0)


def test_leader_of_a_past_epoch_has_nothing_to_announce() -> None:
    leaders = table()
    leaders.merge([announcement(7, 0, TWO)])
    assert leaders.lead(GROUP, LeaderEpoch(6), ONE, [ONE]) is None
    assert leaders.get(GROUP) == announcement(7, 0, TWO)


def test_new_peer_gets_exactly_the_groups_that_this_node_leads() -> None:
    leaders = table()
    other = announcement(1, 0, TWO, GroupId(17))
    leaders.merge([announcement(1), other, announcement(1, 0, ONE, GroupId(18))])
    assert leaders.announce_all(ONE) == [announcement(1), announcement(1, 0, ONE, GroupId(18))]
    assert leaders.announce_all(THREE) == []


def test_deleted_group_is_forgotten_and_does_not_return() -> None:
    deleted: set[GroupId] = set()
    leaders = LeaderTable(deleted.__contains__)
    kept = announcement(1, 0, ONE, GroupId(17))
    leaders.merge([announcement(1), kept])
    leaders.forget_deleted()
    assert len(leaders) == 2
    deleted.add(GROUP)
    leaders.forget_deleted()
    assert (leaders.get(GROUP), leaders.get(GroupId(17)), len(leaders)) == (None, kept, 1)
    assert leaders.merge([announcement(2)]) == []
    assert leaders.lead(GROUP, LeaderEpoch(3), ONE, [ONE]) is None
    assert len(leaders) == 1


def test_batch_survives_its_bytes() -> None:
    batch = [announcement(1), announcement(2, 300, THREE, GroupId(70_000))]
    assert decode_announcements(encode_announcements(batch)) == batch
    assert decode_announcements(memoryview(encode_announcements([]))) == []


def test_thousand_groups_are_a_small_batch() -> None:
    batch = [
        Announcement(GroupId(16 + index), LeaderEpoch(40), 2, ONE, (ONE, TWO, THREE))
        for index in range(1000)
    ]
    assert len(encode_announcements(batch)) < 12_000


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_other_bytes_are_a_breach_of_protocol(data: bytes) -> None:
    try:
        decode_announcements(data)
    except ProtocolError:
        return
    assert data == encode_announcements(decode_announcements(data)) or data[:1] >= b"\x80"


@pytest.mark.parametrize("data", [b"", b"\x91\x01", b"\x91\x95\xa1x\x00\x00\x01\x90", b"\xc1"])
def test_malformed_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_announcements(data)
