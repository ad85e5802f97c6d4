"""Which connection is heard in the old flow."""

from __future__ import annotations

from kafkaesque.broker.transactions.connection_fence import ConnectionFence, NewestConnections


def test_older_connection_is_not_heard_however_often_it_asks() -> None:
    fence = ConnectionFence()
    assert fence.hears(1.0)
    assert fence.hears(2.0)
    assert [fence.hears(1.0) for _ in range(3)] == [False] * 3
    assert fence.hears(2.0)
    assert not fence.hears(1.0)


def test_connections_that_ask_for_an_identity_and_that_use_it_may_be_two() -> None:
    fence = ConnectionFence(init=3.0)
    assert fence.hears(2.0)
    assert fence.hears_init(3.0)
    assert fence.hears(2.0)
    assert not fence.hears_init(2.0)


def test_new_identity_is_heard_over_any_connection() -> None:
    fence = ConnectionFence()
    assert fence.hears(2.0)
    fence.begin()
    assert fence.hears(1.0)


def test_coordinator_that_took_over_hears_no_connection_from_before() -> None:
    fence = ConnectionFence(since=5.0)
    assert not fence.hears(4.0)
    assert not fence.hears_init(4.0)
    assert fence.hears(6.0)
    assert fence.hears_init(6.0)


def test_producers_do_not_hear_of_each_other() -> None:
    newest = NewestConnections(10)
    assert newest.hears("a", 2.0)
    assert newest.hears("b", 1.0)
    assert [newest.hears("a", 1.0) for _ in range(2)] == [False] * 2
    assert newest.hears("b", 1.0)


def test_producer_that_is_not_known_here_is_held_to_what_it_is_told() -> None:
    newest = NewestConnections(10)
    assert not newest.hears("a", 4.0, since=5.0)
    assert not newest.hears("a", 4.0)
    assert newest.hears("a", 6.0, since=7.0)


def test_producer_that_was_forgotten_is_not_heard_over_an_older_connection() -> None:
    newest = NewestConnections(2)
    for name in ("a", "b", "c"):
        assert newest.hears(name, 2.0)
    assert not newest.hears("a", 1.0)
    assert newest.hears("a", 2.0)
