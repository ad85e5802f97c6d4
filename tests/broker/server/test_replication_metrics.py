"""The metrics of the groups and links of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.waiting import eventually

from kafkaesque.lab.harness.metrics import Scrape, scrape
from kafkaesque.testing.cluster_processes import ClusterProcesses

PARTITIONS = 6


def scrapes(cluster: ClusterProcesses) -> list[Scrape]:
    return [scrape(cluster.process(number).http_address) for number in cluster.running]


def scrapes_when(
    cluster: ClusterProcesses, is_due: Callable[[Scrape], bool], complaint: str
) -> list[Scrape]:
    """The metrics of all brokers, once `is_due` is true of each."""

    def look() -> list[Scrape]:
        found = scrapes(cluster)
        return found if all(map(is_due, found)) else []

    return eventually(look, complaint)


def counts_every_term(one: Scrape) -> bool:
    return one.sum("kafkaesque_raft_terms_total") >= PARTITIONS + 1


def test_groups_and_links_of_a_cluster_have_metrics(tmp_path: Path) -> None:
    with ClusterProcesses(3, tmp_path) as cluster:
        cluster.create_topic("t", PARTITIONS)
        cluster.wait_until_in_sync("t")
        # A follower with a small lag may count as in sync before it has seen the term.
        counted = scrapes_when(cluster, counts_every_term, "an election is not counted")
        # The partitions and the controller's group are on every broker, and each has one leader.
        assert all(one.sum("kafkaesque_raft_groups") >= PARTITIONS + 1 for one in counted)
        led = sum(one.sum("kafkaesque_raft_groups_led") for one in counted)
        assert led == counted[0].sum("kafkaesque_raft_groups")
        assert all(one.sum("kafkaesque_raft_journal_syncs_total") >= 1 for one in counted)
        for number, one in enumerate(counted):
            assert one.sum("kafkaesque_link_up") == 2
            assert one.sum("kafkaesque_link_up", f'peer="{number}"') == 0
            for name in ("sent_bytes", "received_bytes", "sent_frames", "sent_pulses"):
                assert one.sum(f"kafkaesque_link_{name}_total") > 0, name
        cluster.kill(2)
        # Each survivor sees the link break by itself.
        scrapes_when(
            cluster,
            lambda one: one.sum("kafkaesque_link_up") == 1,
            "a broken link still counts as up",
        )
