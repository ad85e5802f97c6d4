"""What a client can make grow is counted, so that a snapshot stays within its bounds."""

from __future__ import annotations

import pytest

from kafkaesque.broker.coordination.rules.acl import OPEN, Acl
from kafkaesque.broker.coordination.rules.tree import Tree, TreeLimits, Znode
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError

LONG = tuple(Acl(31, "digest", f"user{number}:" + "x" * 40) for number in range(50))


def test_access_lists_count_and_come_back_to_nothing() -> None:
    tree = Tree(TreeLimits())
    empty = tree.size_bytes
    tree.create("/a", Znode(b"12", OPEN, 0, 1, 1))
    assert tree.size_bytes == empty + 4
    node = tree.require("/a")
    tree.set_acl(node, LONG)
    assert tree.size_bytes > empty + 50 * 40
    tree.set_acl(node, OPEN)
    assert tree.size_bytes == empty + 4
    tree.set_acl(node, LONG)
    tree.delete("/a", 2)
    assert tree.size_bytes == empty


def test_access_list_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    tree = Tree(TreeLimits(size_bytes_max=1000))
    tree.create("/a", Znode(b"", OPEN, 0, 1, 1))
    node, before = tree.require("/a"), tree.size_bytes
    with pytest.raises(CoordinationError) as refused:
        tree.set_acl(node, LONG)
    assert refused.value.code is Code.QUOTA_EXCEEDED
    assert (node.acl, node.aversion, tree.size_bytes) == (OPEN, 0, before)
    with pytest.raises(CoordinationError):
        tree.create("/b", Znode(b"", LONG, 0, 1, 1))
