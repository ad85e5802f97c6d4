"""Connections that are admitted in the old flow (the transaction protocol before KIP-890)."""

from __future__ import annotations

from kafkaesque.broker.transactions.connection_fence import ConnectionFence, NewestConnections


def test_older_connection_is_rejected_every_time() -> None:
    fence = ConnectionFence()
    assert fence.admits(1.0)
    assert fence.admits(2.0)
    assert [fence.admits(1.0) for _ in range(3)] == [False] * 3
    assert fence.admits(2.0)
    assert not fence.admits(1.0)


def test_identity_may_be_requested_and_used_over_different_connections() -> None:
    fence = ConnectionFence(init=3.0)
    assert fence.admits(2.0)
    assert fence.admits_init(3.0)
    assert fence.admits(2.0)
    assert not fence.admits_init(2.0)


def test_new_identity_is_admitted_over_any_connection() -> None:
    fence = ConnectionFence()
    assert fence.admits(2.0)
    fence.begin()
    assert fence.admits(1.0)


def test_coordinator_rejects_connections_older_than_its_takeover() -> None:
    fence = ConnectionFence(since=5.0)
    assert not fence.admits(4.0)
    assert not fence.admits_init(4.0)
    assert fence.admits(6.0)
    assert fence.admits_init(6.0)


def test_producers_do_not_affect_each_other() -> None:
    newest = NewestConnections(10)
    assert newest.admits("a", 2.0)
    assert newest.admits("b", 1.0)
    assert [newest.admits("a", 1.0) for _ in range(2)] == [False] * 2
    assert newest.admits("b", 1.0)


def test_unknown_producer_is_admitted_only_over_connections_since_the_given_time() -> None:
    newest = NewestConnections(10)
    assert not newest.admits("a", 4.0, since=5.0)
    assert not newest.admits("a", 4.0)
    assert newest.admits("a", 6.0, since=7.0)


def test_evicted_producer_is_rejected_over_an_older_connection() -> None:
    newest = NewestConnections(2)
    for name in ("a", "b", "c"):
        assert newest.admits(name, 2.0)
    assert not newest.admits("a", 1.0)
    assert newest.admits("a", 2.0)
