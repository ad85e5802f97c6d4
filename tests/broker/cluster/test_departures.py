"""Brokers that were lost are named to clients for a while longer."""

from __future__ import annotations

from collections.abc import Callable

from kafkaesque.broker.cluster.departures import NAMED_SECONDS, Departures
from kafkaesque.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_lost_broker_is_named_until_its_time_is_over_and_a_younger_loss_counts_anew() -> None:
    planned: list[tuple[float, Callable[[], None]]] = []
    departures = Departures(lambda seconds, action: planned.append((seconds, action)))
    assert ONE not in departures
    departures.lost(ONE)
    departures.lost(ONE)
    departures.lost(TWO)
    assert [seconds for seconds, _ in planned] == [NAMED_SECONDS] * 3
    planned[0][1]()
    assert ONE in departures
    planned[1][1]()
    assert ONE not in departures
    assert TWO in departures
