"""Parsing of /metrics."""

from __future__ import annotations

from kafkaesque.lab.harness.metrics import parse

PAGE = """\
# HELP kafkaesque_link_up 1 if there is a link.
# TYPE kafkaesque_link_up gauge
kafkaesque_link_up{peer="1"} 1.0
kafkaesque_link_up{peer="2"} 0.0
kafkaesque_log_size_bytes{partition="0",topic="a b"} 1.5e+03
kafkaesque_log_size_bytes{partition="1",topic="a b"} 500.0
kafkaesque_partitions 7.0
"""


def test_samples_of_one_name_are_summed() -> None:
    page = parse(PAGE)
    assert page.sum("kafkaesque_log_size_bytes") == 2000
    assert page.sum("kafkaesque_link_up") == 1
    assert page.sum("kafkaesque_partitions") == 7


def test_samples_are_selected_by_labels() -> None:
    assert parse(PAGE).sum("kafkaesque_link_up", 'peer="2"') == 0
    assert parse(PAGE).sum("kafkaesque_log_size_bytes", 'partition="1"') == 500


def test_an_absent_name_is_zero() -> None:
    assert parse(PAGE).sum("kafkaesque_link") == 0
