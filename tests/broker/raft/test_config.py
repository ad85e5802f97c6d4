from __future__ import annotations

from typing import Any

import pytest

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.model.errors import InvalidConfig


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"heartbeat_ticks": 0}, "heartbeat_ticks is 0"),
        ({"inflight_messages_max": 0}, "inflight_messages_max"),
        ({"election_timeout_ticks": 3}, "no room for a lost heartbeat"),
        ({"append_bytes_max": 2**40}, "above inflight_bytes_max"),
        ({"lease_reads": True, "lease_margin_ticks": 7}, "a lease of 1 ticks"),
        ({"quiesce_after_ticks": 1}, "below heartbeat_ticks"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidConfig, match=text):
        RaftConfig(**settings)


def test_lease_ends_before_a_follower_would_vote_again() -> None:
    config = RaftConfig(election_timeout_ticks=10, lease_reads=True, lease_margin_ticks=2)
    # The follower counted to 10, so at least 9 ticks passed; the leader counts at most one less
    # than passed; the clocks differ by at most the margin.
    assert config.lease_ticks + 1 + config.lease_margin_ticks <= config.election_timeout_ticks - 1
