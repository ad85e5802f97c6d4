"""The answers of a broker for partitions that another one leads.

Elections may happen at any moment on a slow machine, so every request is repeated until the answer is
as expected.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.stories.wire_client import WireClient, fetch_request, produce_request

from kafkaesque.broker.node import Node
from kafkaesque.lab.harness.metrics import Sample, scrape
from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.cluster import Cluster
from kafkaesque.testing.waiting import poll_until
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.fetch import FetchRequest, FetchResponse
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaesque.wire.messages.produce import ProduceResponse

PATIENCE_S = 60.0
NOBODY = (None, [])
TOPIC = "t"

ErrorAndLeader = tuple[ErrorCode, tuple[object, list[tuple[int, str]]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings={"http.listener": "127.0.0.1:0"}) as cluster:
        cluster.create_topic(TOPIC, 1)
        yield cluster


async def resign(node: Node) -> bool:
    """Resigns as controller. Returns False if the node is not the confirmed controller."""
    replica = node.context.cluster.controller_log.replica
    is_leader = replica.is_leader
    if is_leader:
        replica.resign()
    return is_leader


def test_topics_are_made_while_the_controller_moves_from_broker_to_broker(cluster: Cluster) -> None:
    """A broker forwards to the next controller, as in Apache Kafka: clients do not notice."""
    codes: list[ErrorCode] = []

    def make_topics() -> None:
        for number in range(30):
            topic = CreatableTopic(
                name=f"moving-{number}",
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            address = cluster.address(number % 3)
            answer = wire_call(address, request, 7, CreateTopicsResponse, PATIENCE_S)
            codes.extend(ErrorCode(made.error_code) for made in answer.topics)

    maker = threading.Thread(target=make_topics)
    maker.start()
    moves = 0
    while maker.is_alive():
        moves += sum(thread.call(resign) for thread in cluster._threads.values())
        maker.join(0.02)
    assert codes == [ErrorCode.NONE] * 30
    assert moves > 3


def until_equal(look: Callable[[], tuple[object, object]]) -> None:
    """`look` returns the actual and the expected value."""
    seen: list[tuple[object, object]] = []

    def is_equal() -> bool | None:
        seen[:] = [look()]
        return seen[0][0] == seen[0][1] or None

    poll_until(is_equal, lambda: f"saw, expected: {seen}", PATIENCE_S)


def hint(answer: Any, row: Any) -> ErrorAndLeader:
    current = row.current_leader
    leader_id = None
    if current is not None:
        assert current.leader_epoch >= 1
        leader_id = current.leader_id
    endpoints = [(one.node_id, f"{one.host}:{one.port}") for one in answer.node_endpoints]
    return ErrorCode(row.error_code), (leader_id, endpoints)


def topic_id(cluster: Cluster) -> UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    answer = wire_call(cluster.address(0), request, 10, MetadataResponse, PATIENCE_S)
    found: UUID = answer.topics[0].topic_id
    return found


def produce_to(cluster: Cluster, number: int, version: int) -> ErrorAndLeader:
    request = produce_request(TOPIC, [b"x"])
    request.topic_data[0].topic_id = topic_id(cluster)
    answer = wire_call(cluster.address(number), request, version, ProduceResponse, PATIENCE_S)
    return hint(answer, answer.responses[0].partition_responses[0])


def fetch_from(cluster: Cluster, number: int, version: int, epoch: int = -1) -> ErrorAndLeader:
    request: FetchRequest = fetch_request(TOPIC, 0)
    request.topics[0].topic_id = topic_id(cluster)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    answer = wire_call(cluster.address(number), request, version, FetchResponse, PATIENCE_S)
    return hint(answer, answer.responses[0].partitions[0])


@pytest.mark.parametrize(
    ("ask", "version", "has_leader_hint"),
    [
        (produce_to, 9, False),
        (produce_to, 10, True),
        (produce_to, 13, True),
        (fetch_from, 15, False),
        (fetch_from, 16, True),
    ],
)
def test_follower_answers_with_the_leader_and_its_address(
    cluster: Cluster,
    ask: Callable[[Cluster, int, int], ErrorAndLeader],
    version: int,
    has_leader_hint: bool,
) -> None:
    def look() -> tuple[ErrorAndLeader, ErrorAndLeader]:
        leader = cluster.wait_until_leader(TOPIC, within=PATIENCE_S)
        expected = (leader, [(leader, cluster.address(leader))]) if has_leader_hint else NOBODY
        answer = ask(cluster, (leader + 1) % 3, version)
        return answer, (ErrorCode.NOT_LEADER_OR_FOLLOWER, expected)

    until_equal(look)


@pytest.mark.parametrize(("ask", "version"), [(produce_to, 13), (fetch_from, 17)])
def test_answer_of_the_leader_has_no_leader_hint(
    cluster: Cluster, ask: Callable[[Cluster, int, int], ErrorAndLeader], version: int
) -> None:
    def look() -> tuple[ErrorAndLeader, ErrorAndLeader]:
        leader = cluster.wait_until_leader(TOPIC, within=PATIENCE_S)
        return ask(cluster, leader, version), (ErrorCode.NONE, NOBODY)

    until_equal(look)


def test_answer_to_a_fetch_with_an_old_epoch_names_the_same_broker_as_leader(
    cluster: Cluster,
) -> None:
    def look() -> tuple[ErrorAndLeader, ErrorAndLeader]:
        leader = cluster.wait_until_leader(TOPIC, within=PATIENCE_S)
        expected = (leader, [(leader, cluster.address(leader))])
        answer = fetch_from(cluster, leader, 16, epoch=0)
        return answer, (ErrorCode.FENCED_LEADER_EPOCH, expected)

    until_equal(look)


# -- lag ----------------------------------------------------------------------------------------


def reported_lags(cluster: Cluster) -> list[tuple[str, float]]:
    """Labels and values of the lag, from the metrics of all brokers."""
    samples: list[Sample] = []
    for number in cluster.running:
        facts = json.loads((cluster.data(number) / "broker.json").read_text())
        samples += scrape(facts["http"]).samples
    return sorted((s.labels, s.value) for s in samples if s.name == "kafkaesque_group_lag")


def commit(cluster: Cluster, group: str, topic: str, offsets: list[int]) -> None:
    """At whichever broker coordinates the group."""
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )

    def look() -> bool | None:
        for number in cluster.running:
            address = cluster.address(number)
            find_coordinator(address, group)
            answer = wire_call(address, request, 8, OffsetCommitResponse, PATIENCE_S)
            if all(row.error_code == ErrorCode.NONE for row in answer.topics[0].partitions):
                return True
        return None

    poll_until(look, lambda: f"a coordinator of {group}", PATIENCE_S)


def find_coordinator(address: str, group: str) -> None:
    """Asks for the coordinator, which creates the topic of the offsets if it does not exist."""
    from kafkaesque.wire.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

    wire_call(address, FindCoordinatorRequest(key=group), 3, FindCoordinatorResponse, PATIENCE_S)


def test_lag_of_a_group_is_right_for_partitions_of_every_broker_and_never_guessed(
    cluster: Cluster,
) -> None:
    """One replica each: the coordinator has no copy of two of the three."""
    cluster.create_topic("spread", 3, replication_factor=1)
    for partition in range(3):
        leader = cluster.wait_until_leader("spread", partition, within=PATIENCE_S)
        with WireClient(cluster.address(leader), PATIENCE_S) as client:
            values = [b"x"] * (partition + 2)
            assert (
                client.produce("spread", values, partition=partition).error_code == ErrorCode.NONE
            )
    commit(cluster, "g", "spread", [1, 1, 1])
    expected = [(f'group="g",partition="{n}",topic="spread"', n + 1.0) for n in range(3)]
    until_equal(lambda: (reported_lags(cluster), expected))
    gone = cluster.wait_until_leader("spread", 2, within=PATIENCE_S)
    try:
        cluster.kill(gone)
        until_equal(lambda: (reported_lags(cluster), expected[:2]))
    finally:
        cluster.mend()
