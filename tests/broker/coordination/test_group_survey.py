"""The survey of consumer groups while brokers are slow, down, or send invalid answers."""

from __future__ import annotations

import asyncio

from kafkaesque.broker.coordination.group_survey import GROUPS, GroupSurvey
from kafkaesque.broker.coordination.rules.consumers import GroupRow
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.model.ids import NodeId


class Brokers:
    """Three surveys that call one another directly. Those in `silent` do not answer."""

    def __init__(self) -> None:
        self.alive = [NodeId(number) for number in range(3)]
        self.silent: set[int] = set()
        self.babbling: set[int] = set()
        self.groups: dict[int, list[str]] = {0: ["zero"], 1: ["one"], 2: ["two"]}
        self._surveys = [self._survey(node) for node in self.alive]

    def _survey(self, node: NodeId) -> GroupSurvey:
        def own_groups() -> list[GroupRow]:
            return [GroupRow(name, [], {}) for name in self.groups[node]]

        return GroupSurvey(node, lambda: self.alive, self._call, own_groups)

    async def _call(self, node: NodeId, kind: int, body: bytes, timeout_s: float) -> bytes:
        assert (kind, body) == (GROUPS, b"")
        if node in self.silent:
            raise PeerError(f"no answer within {timeout_s} s")
        return b"\xff" if node in self.babbling else self._surveys[node].answer()

    def seen(self) -> list[str]:
        """By broker 0."""
        rows = asyncio.run(self._gathered())
        return sorted(row.group_id for row in rows)

    async def _gathered(self) -> list[GroupRow]:
        await self._surveys[0].survey()
        return list(self._surveys[0].groups())


def test_groups_of_all_brokers_are_seen() -> None:
    assert Brokers().seen() == ["one", "two", "zero"]


def test_groups_of_a_broker_that_does_not_answer_stay_until_it_does() -> None:
    brokers = Brokers()
    brokers.seen()
    brokers.silent = {1}
    brokers.babbling = {2}
    brokers.groups |= {1: [], 2: []}
    assert brokers.seen() == ["one", "two", "zero"]
    brokers.silent.clear()
    brokers.babbling.clear()
    assert brokers.seen() == ["zero"]


def test_groups_of_a_lost_broker_are_removed() -> None:
    brokers = Brokers()
    brokers.seen()
    brokers.alive.remove(NodeId(1))
    assert brokers.seen() == ["two", "zero"]
