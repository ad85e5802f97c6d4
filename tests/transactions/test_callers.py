"""Which connection is heard in the old flow."""

from __future__ import annotations

from kafkaesque.transactions.callers import Callers


def test_request_over_an_older_connection_is_told_to_try_again_and_is_not_asked_twice() -> None:
    callers = Callers(10)
    assert callers.admits("tx", 1.0)
    assert callers.admits("tx", 2.0)
    assert not callers.admits("tx", 1.0)
    assert callers.admits("tx", 2.0)
    assert not callers.admits("tx", 1.0)


def test_client_that_is_really_there_is_heard_when_it_asks_again() -> None:
    callers = Callers(10)
    assert callers.admits("tx", 2.0)
    assert not callers.admits("tx", 1.0)
    assert callers.admits("tx", 1.0)
    assert callers.admits("tx", 1.0)
    assert callers.admits("tx", 2.0)


def test_ids_do_not_hear_of_each_other_and_are_bounded() -> None:
    callers = Callers(2)
    for name in ("a", "b", "c"):
        assert callers.admits(name, 2.0)
    assert callers.admits("a", 1.0)
    assert not callers.admits("c", 1.0)
