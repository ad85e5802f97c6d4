"""Reserved ports, directories, and which broker founds the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.testing.cluster_layout import Layout, cluster_settings


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, 3, {"num.partitions": 4})


def test_first_broker_founds_and_the_others_join(layout: Layout) -> None:
    assert [layout.settings(number)["join"] for number in range(3)] == [
        None,
        [layout.address(0), layout.address(2)],
        [layout.address(0), layout.address(1)],
    ]
    layout.close()


def test_first_broker_joins_once_there_is_a_cluster(layout: Layout) -> None:
    layout.data(0).mkdir()
    assert layout.settings(0)["join"] == [layout.address(1), layout.address(2)]
    layout.wipe(0)
    assert layout.settings(0)["join"] is None
    layout.data(1).mkdir()
    assert layout.settings(0)["join"] == [layout.address(1), layout.address(2)]
    layout.close()


def test_settings_combine_shared_and_own_ones(layout: Layout) -> None:
    settings = layout.settings(2)
    assert settings["num.partitions"] == 4
    assert settings["node.id"] == 2
    assert settings["listeners"] == layout.address(2)
    assert settings["log.dirs"] == str(layout.data(2))
    layout.close()


@pytest.mark.parametrize(("count", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_topics_have_as_many_replicas_as_there_are_brokers(count: int, factor: int) -> None:
    assert cluster_settings(count, None)["default.replication.factor"] == factor
    assert (
        cluster_settings(count, {"default.replication.factor": 1})["default.replication.factor"]
        == 1
    )
