"""Self-management of a cluster: preferred leaders return, damage is repaired, a short pause is tolerated,
replicas are spread over racks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkaesque.broker.node  # noqa: F401 - on a busy machine the import takes as long as a start may
from kafkaesque.testing import Cluster
from kafkaesque.testing.client import SharedClient
from kafkaesque.testing.records import fields_of
from kafkaesque.testing.waiting import poll_until
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.timeout(600)
PATIENCE_S = 60.0
METADATA_VERSION = 12
CREATE_TOPICS_VERSION = 7
COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
SETTINGS = {"auto.leader.rebalance.enable": True, "leader.imbalance.check.interval.seconds": 1}
ATTEMPTS = 5
"""On a busy machine one pause may be followed by an election that it did not cause; five are not."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.mend()
    shared.check()


def produce(cluster: Cluster, topic: str, value: str) -> None:
    with SharedClient(cluster.bootstrap_servers) as client:
        client.produce(topic, [fields_of(value)], PATIENCE_S)


def metadata(cluster: Cluster, number: int = 0) -> MetadataResponse:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return wire_call(
        cluster.address(number), request, METADATA_VERSION, MetadataResponse, PATIENCE_S
    )


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    (found,) = (one for one in metadata(cluster).topics if one.name == topic)
    return [row.replica_nodes for row in found.partitions]


def epoch(cluster: Cluster, topic: str) -> int:
    """The leader epoch of the only partition, as its leader reports it."""
    leader = cluster.wait_until_leader(topic, within=PATIENCE_S)
    (found,) = (one for one in metadata(cluster, leader).topics if one.name == topic)
    return found.partitions[0].leader_epoch


def wait_until_led_by(cluster: Cluster, topic: str, leader: int) -> None:
    poll_until(
        lambda: cluster.leader_of(topic) == leader or None,
        lambda: f"{topic} led by {leader}, not by {cluster.leader_of(topic)}",
        PATIENCE_S,
    )


def test_leadership_returns_to_the_preferred_leader_that_was_killed(cluster: Cluster) -> None:
    cluster.create_topic("returning")
    ((preferred, *_),) = replicas(cluster, "returning")
    wait_until_led_by(cluster, "returning", preferred)
    cluster.kill(preferred)
    cluster.wait_until_leader("returning", other_than=preferred, within=PATIENCE_S)
    cluster.restart(preferred)
    wait_until_led_by(cluster, "returning", preferred)


def segment_with(data: Path, content: bytes) -> Path:
    """Waits until it exists: a record is acknowledged once two of three replicas have it, and a replica
    that lacks a few records still counts as in sync."""

    def look() -> Path | None:
        found = [path for path in data.glob("topics/*/*/*.log") if content in path.read_bytes()]
        assert len(found) <= 1
        return found[0] if found else None

    return poll_until(look, lambda: f"no segment of {data} has the record", PATIENCE_S)


def test_flipped_bit_on_one_replica_is_repaired_from_a_peer(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("flipped")
    content = "precious" * 10
    produce(cluster, "flipped", content)
    cluster.wait_until_in_sync("flipped", within=PATIENCE_S)
    follower = (cluster.wait_until_leader("flipped") + 1) % 3
    segment = segment_with(cluster.data(follower), content.encode())
    before = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(before.index(content.encode()) + 7)
        file.write(b"z")
    poll_until(
        lambda: (
            ("repaired damaged entry" in caplog.text and segment.read_bytes() == before) or None
        ),
        lambda: f"a repair of {segment}\n{caplog.text}",
        PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("is_leader", "stall_s"),
    [
        pytest.param(False, 1.5, id="follower-for-longer-than-an-election-takes"),
        pytest.param(True, 0.4, id="leader-for-a-moment"),
    ],
)
def test_short_stall_of_the_event_loop_causes_no_election(
    cluster: Cluster, is_leader: bool, stall_s: float
) -> None:
    topic = f"stalled-{is_leader}"
    cluster.create_topic(topic)
    ((preferred, *_),) = replicas(cluster, topic)
    epochs = []
    for _ in range(ATTEMPTS):
        wait_until_led_by(cluster, topic, preferred)
        cluster.wait_until_in_sync(within=PATIENCE_S)
        before = epoch(cluster, topic)
        number = preferred if is_leader else (preferred + 1) % 3
        cluster.pause(number)
        time.sleep(stall_s)  # the duration itself is under test
        cluster.resume(number)
        cluster.wait_until_joined(within=PATIENCE_S)
        cluster.wait_until_in_sync(within=PATIENCE_S)
        produce(cluster, topic, "x")
        epochs.append((before, epoch(cluster, topic)))
        if epochs[-1][0] == epochs[-1][1]:
            return
    raise AssertionError(f"each of {ATTEMPTS} pauses was followed by an election: {epochs}")


@contextmanager
def broker_in_rack(rack: str, node_id: int, seed: str, data: Path) -> Iterator[None]:
    """`kafkaesque broker --rack`, from the command line."""
    options = ["--node-id", str(node_id), "--rack", rack, "--join", seed, "--data", str(data)]
    log_path = data.with_suffix(".log")
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            [*COMMAND, "broker", *options, "--listen", "127.0.0.1:0", "--end-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready "), log_path.read_text()
            yield
        finally:
            process.kill()


def test_replicas_are_spread_over_the_racks_of_the_brokers(tmp_path: Path) -> None:
    with (
        Cluster(2, settings={"broker.rack": "a"}) as cluster,
        broker_in_rack("b", 7, cluster.address(0), tmp_path / "broker-7"),
    ):
        poll_until(
            lambda: len(metadata(cluster).brokers) == 3 or None, lambda: "a broker 7", PATIENCE_S
        )
        racks = {broker.node_id: broker.rack for broker in metadata(cluster).brokers}
        assert racks == {0: "a", 1: "a", 7: "b"}
        topic = CreatableTopic(
            name="spread", num_partitions=6, replication_factor=2, assignments=[], configs=[]
        )
        wire_call(
            cluster.address(0),
            CreateTopicsRequest(topics=[topic], timeout_ms=int(PATIENCE_S * 1000)),
            CREATE_TOPICS_VERSION,
            CreateTopicsResponse,
            PATIENCE_S,
        )
        placed = replicas(cluster, "spread")
        # Without racks a third of the partitions would be on brokers 0 and 1.
        assert [sorted(racks[node] or "" for node in nodes) for nodes in placed] == [["a", "b"]] * 6
