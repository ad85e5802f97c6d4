"""Brokers that were lost recently are still listed to clients for a while."""

from __future__ import annotations

from collections.abc import Callable

from kafkaesque.broker.cluster.elections import NAMED_SECONDS, RecentlyLost
from kafkaesque.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_lost_broker_is_listed_for_a_while_and_a_second_loss_restarts_the_timer() -> None:
    planned: list[tuple[float, Callable[[], None]]] = []
    lost = RecentlyLost(lambda seconds, action: planned.append((seconds, action)))
    assert ONE not in lost
    lost.add(ONE)
    lost.add(ONE)
    lost.add(TWO)
    assert [seconds for seconds, _ in planned] == [NAMED_SECONDS] * 3
    planned[0][1]()
    assert ONE in lost
    planned[1][1]()
    assert ONE not in lost
    assert TWO in lost
