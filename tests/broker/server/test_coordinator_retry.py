"""A commit waits while the coordinator changes, and no longer than an election takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from kafkaesque.broker.partitions.group_coordinator import GroupShard
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.coordinator_retry import ELECTION_SECONDS, call_with_retries
from kafkaesque.model.errors import CoordinatorLoading, KafkaError, NotCoordinator

HERE, ELSEWHERE = 1, 2
LOADING, MOVED = CoordinatorLoading("loading"), NotCoordinator("moved")


class Scene:
    """A coordinator that rejects a few calls, and a broker that sees the given leaders one after the
    other. Each reading of the clock takes `look_seconds`."""

    def __init__(
        self, refusals: list[KafkaError], leaders: list[int | None], look_seconds: float = 0.0
    ) -> None:
        self.refusals = iter(refusals)
        self.leaders: Iterator[int | None] = iter(leaders)
        self.now = 0.0
        self.look_seconds = look_seconds
        self.context = cast(
            Context,
            SimpleNamespace(
                cluster=SimpleNamespace(node_id=HERE, leader_of=self.leader_of),
                groups=SimpleNamespace(of_group=lambda _: None, partition_of=lambda _: 7),
                loop=SimpleNamespace(time=self.time),
            ),
        )

    def time(self) -> float:
        self.now += self.look_seconds
        return self.now

    def leader_of(self, _topic: str, _index: int) -> SimpleNamespace | None:
        leader = next(self.leaders)
        return None if leader is None else SimpleNamespace(node_id=leader)

    def commit(self) -> str:
        async def ask(_: GroupShard) -> str:
            for refusal in self.refusals:
                raise refusal
            return "committed"

        return asyncio.run(call_with_retries(self.context, "g", ask))


def test_request_is_retried_until_the_coordinator_has_loaded() -> None:
    assert Scene([LOADING, LOADING, LOADING], []).commit() == "committed"


def test_broker_that_hands_over_leadership_refuses_once_the_new_leader_is_known() -> None:
    scene = Scene([MOVED] * 9, leaders=[None, HERE, ELSEWHERE])

    with pytest.raises(NotCoordinator):
        scene.commit()

    assert len(list(scene.refusals)) == 6, "asked once for each reported leader"


def test_leadership_that_comes_back_is_not_reported_to_clients() -> None:
    assert Scene([MOVED, MOVED, LOADING], leaders=[None, HERE]).commit() == "committed"


@pytest.mark.parametrize("refusal", [LOADING, MOVED])
def test_wait_ends_with_the_refusal_itself(refusal: KafkaError) -> None:
    scene = Scene([refusal] * 9, leaders=[None] * 9, look_seconds=ELECTION_SECONDS / 2)

    with pytest.raises(type(refusal)):
        scene.commit()


def test_other_refusals_are_reported_at_once() -> None:
    scene = Scene([KafkaError("anything else"), LOADING], [])

    with pytest.raises(KafkaError, match="anything else"):
        scene.commit()
