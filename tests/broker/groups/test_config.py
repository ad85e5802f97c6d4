from __future__ import annotations

from typing import Any

import pytest

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.model.errors import InvalidConfig


def test_defaults_are_kafkas() -> None:
    config = GroupConfig()
    assert config.initial_rebalance_delay_ms == 3000
    assert (config.session_timeout_ms_min, config.session_timeout_ms_max) == (6000, 1_800_000)
    assert config.group_size_max == 2**31 - 1
    assert config.offsets_retention_ms == 10080 * 60 * 1000
    assert config.offset_metadata_length_max == 4096


@pytest.mark.parametrize(
    "settings",
    [
        {"initial_rebalance_delay_ms": -1},
        {"session_timeout_ms_min": 10, "session_timeout_ms_max": 9},
        {"group_size_max": 0},
        {"groups_max": 0},
        {"offset_metadata_length_max": 8192},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        GroupConfig(**settings)
