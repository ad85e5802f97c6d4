"""Registries: updated change by change, read like nodes, read-only for clients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.coordination.rules.acl import READ_ONLY, AuthIdentity
from kafkaesque.broker.coordination.rules.commands import (
    Create,
    Delete,
    Multi,
    OpenSession,
    SetAcl,
    SetData,
    WriteCommand,
    encode_command,
)
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.registry import (
    Leaf,
    RegistryTree,
    is_registry,
    touches_registry,
)
from kafkaesque.broker.coordination.rules.vocabulary import Code, EventType

CREATED, DELETED, CHANGED, CHILDREN = (
    EventType.NODE_CREATED,
    EventType.NODE_DELETED,
    EventType.NODE_DATA_CHANGED,
    EventType.NODE_CHILDREN_CHANGED,
)


def types_and_paths(events: list[NodeEvent]) -> list[tuple[EventType, str]]:
    return [(event.type, event.path) for event in events]


def test_changes_are_notified_like_those_of_nodes() -> None:
    registry = RegistryTree()
    events = registry.show("brokers", {"/brokers/ids/0": Leaf(b"a", 1)}, 5, 100)
    assert types_and_paths(events) == [
        (CREATED, "/brokers"),
        (CHILDREN, "/"),
        (CREATED, "/brokers/ids"),
        (CHILDREN, "/brokers"),
        (CREATED, "/brokers/ids/0"),
        (CHILDREN, "/brokers/ids"),
    ]
    node = registry.tree.require("/brokers/ids/0")
    assert (node.data, node.acl, node.czxid, node.stat().ephemeral_owner) == (b"a", READ_ONLY, 5, 1)
    changed = {"/brokers/ids/0": Leaf(b"b", 1), "/brokers/ids/1": Leaf(b"c", 2)}
    assert types_and_paths(registry.show("brokers", changed, 6, 101)) == [
        (CHANGED, "/brokers/ids/0"),
        (CREATED, "/brokers/ids/1"),
        (CHILDREN, "/brokers/ids"),
    ]
    assert registry.show("brokers", changed, 7, 102) == []
    assert types_and_paths(registry.show("brokers", {"/brokers/ids": Leaf(b"")}, 8, 103)) == [
        (DELETED, "/brokers/ids/0"),
        (CHILDREN, "/brokers/ids"),
        (DELETED, "/brokers/ids/1"),
        (CHILDREN, "/brokers/ids"),
    ]


_parts = st.lists(st.sampled_from("abc"), min_size=0, max_size=3)
_leaves = st.dictionaries(
    _parts.map(lambda names: "/".join(["/controller", *names])), st.binary(max_size=2)
)


@settings(deadline=None)
@given(st.lists(_leaves, max_size=5))
def test_registry_is_what_was_last_shown_and_others_stay(
    shown: list[dict[str, bytes]],
) -> None:
    registry = RegistryTree()
    registry.show("cluster", {"/cluster/id": Leaf(b"x")}, 1, 1)
    registry.show("controller_epoch", {"/controller_epoch": Leaf(b"1")}, 1, 1)
    for zxid, leaves in enumerate(shown, 2):
        registry.show("controller", {path: Leaf(data) for path, data in leaves.items()}, zxid, 1)
        present = {path for path in registry.tree.nodes if path.split("/")[1] == "controller"}
        assert {path: registry.tree.nodes[path].data for path in leaves} == leaves
        assert all(any(leaf.startswith(path) for leaf in leaves) for path in present)
    assert registry.tree.get("/cluster/id") is not None
    assert registry.tree.get("/controller_epoch") is not None


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/brokers", True),
        ("/brokers/ids/0", True),
        ("/brokers2", False),
        ("/mine/brokers", False),
        ("/", False),
        ("", False),
        ("brokers", False),
    ],
)
def test_only_the_names_of_registries_belong_to_them(path: str, is_one: bool) -> None:
    assert is_registry(path) is is_one
    assert touches_registry([path]) is (is_one or path in ("", "/"))


@pytest.mark.parametrize(
    "operation",
    [
        Create("/brokers", b"", ((31, "world", "anyone"),), 0),  # type: ignore[arg-type]
        Create("/consumers/mine", b"", ((31, "world", "anyone"),), 0),  # type: ignore[arg-type]
        Delete("/controller", -1),
        SetData("/brokers/ids/0", b"x", -1),
        SetAcl("/cluster", ((31, "world", "anyone"),), -1),  # type: ignore[arg-type]
    ],
)
def test_writes_to_registries_are_refused_everywhere_alike(operation: object) -> None:
    machine = Machine(has_registries=True)
    machine.apply(1, encode_command(OpenSession(7, bytes(16), 10_000, 3)))

    def write(sequence: int, what: object) -> bytes:
        return encode_command(WriteCommand(7, 3, sequence, 0, (AuthIdentity("ip", "::1"),), what))  # type: ignore[arg-type]

    before = machine.snapshot()
    assert machine.apply(2, write(0, operation)).code is Code.NO_AUTH
    if not isinstance(operation, SetAcl):
        outcome = machine.apply(3, write(1, Multi((operation,))))  # type: ignore[arg-type]
        assert [result.code for result in outcome.results] == [Code.NO_AUTH]
    assert len(machine.snapshot()) == len(before)
    free = Machine()
    free.apply(1, encode_command(OpenSession(7, bytes(16), 10_000, 3)))
    assert free.apply(2, write(0, operation)).code is not Code.NO_AUTH
