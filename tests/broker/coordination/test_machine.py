from __future__ import annotations

import pytest
from tests.broker.coordination.rig import ALICE, BOB, PASSWORD, Rig, create

from kafkaesque.broker.coordination.rules.commands import (
    Check,
    CloseSession,
    Delete,
    Multi,
    OpenSession,
    Reap,
    SetData,
    WriteCommand,
    encode_command,
)
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.tree import TreeLimits
from kafkaesque.broker.coordination.rules.vocabulary import Code, CreateMode, EventType, OpCode
from kafkaesque.model.errors import InvariantBroken

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED


def test_zxid_is_the_index_of_the_command() -> None:
    rig = Rig()
    outcome = rig.write(create("/a"))
    assert outcome.zxid == rig.machine.zxid == 3
    assert rig.machine.tree.require("/a").stat().czxid == 3


def test_failed_write_takes_a_zxid_and_changes_nothing() -> None:
    rig = Rig()
    before = rig.machine.snapshot()
    outcome = rig.write(SetData("/no", b"", -1))
    assert (outcome.code, outcome.events, rig.machine.zxid) == (Code.NO_NODE, (), 3)
    after = Machine()
    after.restore(rig.machine.snapshot())
    assert after.tree.nodes.keys() == {"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    assert before != rig.machine.snapshot()


def test_decreasing_index_stops_the_node() -> None:
    rig = Rig()
    with pytest.raises(InvariantBroken):
        rig.machine.apply(1, encode_command(OpenSession(9, PASSWORD, 1000, 9)))


def test_events_name_what_happened_to_the_node_and_its_parent() -> None:
    rig = Rig()
    rig.write(create("/a"))
    events = [
        [(event.type, event.path) for event in outcome.events]
        for outcome in (
            rig.write(create("/a/b")),
            rig.write(SetData("/a/b", b"x", -1)),
            rig.write(Delete("/a/b", -1)),
        )
    ]
    assert events == [
        [(CREATED, "/a/b"), (CHILDREN, "/a")],
        [(CHANGED, "/a/b")],
        [(DELETED, "/a/b"), (CHILDREN, "/a")],
    ]


def test_closed_session_takes_its_ephemerals_in_order_and_no_others() -> None:
    rig = Rig()
    rig.write(create("/a"))
    for name in ("/a/2", "/a/1"):
        rig.write(create(name, mode=CreateMode.EPHEMERAL))
    rig.write(create("/a/3", mode=CreateMode.EPHEMERAL), session=BOB)
    outcome = rig.close(ALICE)
    assert [event.path for event in outcome.events if event.type is DELETED] == ["/a/2", "/a/1"]
    assert outcome.session_closed == ALICE
    assert list(rig.machine.tree.require("/a").children) == ["3"]
    assert rig.write(create("/b")).code is Code.SESSION_EXPIRED


def test_expiry_of_a_session_that_was_attached_meanwhile_is_void() -> None:
    rig = Rig()
    rig.attach(ALICE, owner=7)
    outcome = rig.apply(CloseSession(ALICE, owner=ALICE, is_expired=True))
    assert (outcome.code, outcome.session_closed) == (Code.SESSION_MOVED, None)
    assert ALICE in rig.machine.sessions


def test_attached_session_refuses_the_old_connection() -> None:
    rig = Rig()
    outcome = rig.attach(ALICE, owner=7)
    assert outcome.session_started is not None
    assert outcome.session_started.owner == 7
    assert rig.write(create("/a")).code is Code.SESSION_MOVED
    fresh = rig.apply(WriteCommand(ALICE, 7, 0, 1, (), create("/a")))
    assert fresh.code is Code.OK


def test_attachment_with_a_wrong_password_changes_nothing() -> None:
    rig = Rig()
    assert rig.attach(ALICE, owner=7, password=b"x" * 16).code is Code.SESSION_EXPIRED
    assert rig.attach(999, owner=7).code is Code.SESSION_EXPIRED
    assert rig.write(create("/a")).code is Code.OK


def test_write_after_a_lost_one_is_rejected() -> None:
    """Its client's order would be broken: the first never happened, the second must not."""
    rig = Rig()
    assert (
        rig.apply(WriteCommand(ALICE, ALICE, 1, 1, (), create("/second"))).code
        is Code.SESSION_MOVED
    )
    assert rig.write(create("/first")).code is Code.OK
    assert (
        rig.apply(WriteCommand(ALICE, ALICE, 0, 1, (), create("/again"))).code is Code.SESSION_MOVED
    )


def test_sessions_are_bounded() -> None:
    rig = Rig(Machine(sessions_max=2))
    assert rig.open(103).code is Code.SYSTEM_ERROR
    rig.close(ALICE)
    assert rig.open(103).code is Code.OK
    assert rig.open(103).code is Code.SYSTEM_ERROR


def test_failed_multi_takes_back_every_kind_of_change() -> None:
    rig = Rig()
    rig.write(create("/a", b"before"))
    rig.write(create("/a/kid", mode=CreateMode.EPHEMERAL))
    before = [(path, node.stat(), node.data) for path, node in rig.machine.tree.nodes.items()]
    size_bytes = rig.machine.tree.size_bytes
    outcome = rig.write(
        Multi(
            (
                create("/b"),
                create("/b/s-", mode=CreateMode.EPHEMERAL_SEQUENTIAL),
                SetData("/a", b"after", 0),
                Delete("/a/kid", -1),
                create("/c", mode=CreateMode.CONTAINER),
                Check("/a", 0),
                Delete("/b", -1),
            )
        )
    )
    assert outcome.code is Code.OK
    assert [result.code for result in outcome.results] == [
        *[Code.OK] * 5,
        Code.BAD_VERSION,
        Code.RUNTIME_INCONSISTENCY,
    ]
    assert outcome.events == ()
    tree = rig.machine.tree
    after = [(path, node.stat(), node.data) for path, node in tree.nodes.items()]
    assert sorted(after) == sorted(before)
    assert tree.size_bytes == size_bytes
    assert tree.ephemerals_of(ALICE) == ["/a/kid"]
    assert list(tree.reapable()) == []


def test_multi_sees_its_own_changes() -> None:
    rig = Rig()
    parts = (create("/a"), create("/a/b"), SetData("/a", b"", 0), Check("/a", 1), Delete("/a/b", 0))
    outcome = rig.write(Multi(parts))
    assert [result.opcode for result in outcome.results] == [
        OpCode.CREATE,
        OpCode.CREATE,
        OpCode.SET_DATA,
        OpCode.CHECK,
        OpCode.DELETE,
    ]
    assert len(outcome.events) == 7


def test_full_tree_rejects_growth_and_still_works() -> None:
    rig = Rig(Machine(TreeLimits(nodes_max=6, size_bytes_max=120)))
    assert rig.write(create("/a")).code is Code.OK
    assert rig.write(SetData("/a", b"x" * 100, -1)).code is Code.QUOTA_EXCEEDED
    assert rig.write(create("/b")).code is Code.OK
    assert rig.write(create("/c")).code is Code.QUOTA_EXCEEDED
    assert rig.write(Multi((Delete("/b", -1), create("/c")))).results[1].code is Code.OK
    assert rig.write(SetData("/a", b"x", -1)).code is Code.OK


def test_reaping_spares_a_node_that_changed_since() -> None:
    rig = Rig()
    rig.write(create("/box", mode=CreateMode.CONTAINER))
    node = rig.machine.tree.require("/box")
    stale = Reap("/box", node.czxid, node.mzxid)
    rig.write(create("/box/kid"))
    rig.apply(stale)
    assert rig.machine.tree.get("/box") is not None
    rig.write(Delete("/box/kid", -1))
    rig.write(SetData("/box", b"", -1))
    rig.apply(stale)
    assert rig.machine.tree.get("/box") is not None
    rig.apply(Reap("/box", node.czxid, node.mzxid))
    assert rig.machine.tree.get("/box") is None
    assert rig.apply(stale).code is Code.OK


def test_sequence_number_wraps_as_a_java_int() -> None:
    rig = Rig()
    rig.machine.tree.require("/").child_creates = 2**31 - 1
    first = rig.write(create("/s-", mode=CreateMode.PERSISTENT_SEQUENTIAL))
    second = rig.write(create("/s-", mode=CreateMode.PERSISTENT_SEQUENTIAL))
    assert [first.results[0].path, second.results[0].path] == ["/s-2147483647", "/s--2147483648"]
