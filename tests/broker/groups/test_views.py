from __future__ import annotations

import pytest
from tests.broker.groups.driver import Driver

from kafkaesque.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ((), (), ["g", "simple"]),
        (("stable",), (), ["g"]),
        (("Empty", " STABLE "), ("classic",), ["g", "simple"]),
        ((), ("CLASSIC", "consumer"), ["g", "simple"]),
        ((), ("consumer",), []),
        (("Dead",), (), []),
    ],
)
def test_listing_filters_by_state_and_type_without_case(
    states: tuple[str, ...], types: tuple[str, ...], listed: list[str]
) -> None:
    driver = Driver()
    driver.stable_group("a")
    driver.commit("t", 1, group_id="simple")
    assert [group.group_id for group in driver.registry.list_groups(states, types)] == listed


@pytest.mark.parametrize(
    ("api_version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_unknown_group_is_described_as_dead(api_version: int, error: ErrorCode) -> None:
    (group,) = Driver().registry.describe_groups(["x"], api_version)
    assert (group.state, group.error, group.members) == ("Dead", error, ())
    assert (group.error_message is None) == (api_version < 6)
