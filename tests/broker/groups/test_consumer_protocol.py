from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.groups.consumer_protocol import subscription

from kafkaesque.broker.groups.consumer_protocol import subscribed_topics


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_read_from_any_version(version: int) -> None:
    metadata = subscription(["orders", "pay"], {"orders": [0, 1]}, version)
    assert subscribed_topics(metadata) == {"orders", "pay"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0\0\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\5ab",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0\0\0\0\2\0\2ab",
    ],
)
def test_other_bytes_are_no_subscription(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_not_but_do_no_harm(metadata: bytes) -> None:
    subscribed_topics(metadata)
