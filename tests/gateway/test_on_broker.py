"""Stories of the gateway that are always told on a real broker too, and not in memory only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.gateway import test_handover, test_story
from tests.gateway.logs import KAFKA, logs_at

STORIES: tuple[Callable[[], None], ...] = (
    test_story.test_command_is_acknowledged_and_its_result_comes_as_an_event,
    test_story.test_account_is_made_by_password_once_and_logs_in_by_it,
    test_story.test_client_that_was_away_gets_what_it_missed_on_another_gateway,
    test_story.test_position_that_the_log_no_longer_has_is_told_plainly,
    test_story.test_slow_client_spills_to_the_log_and_loses_nothing,
    test_story.test_rooms_are_followed_across_a_reconnect_without_a_gap,
    test_story.test_token_that_was_logged_out_is_good_nowhere,
    test_story.test_user_on_two_gateways_is_present_until_both_connections_went,
    test_story.test_drain_sends_clients_to_other_gateways_and_nothing_is_missed,
    test_story.test_unknown_version_is_refused_and_a_known_one_has_its_own_back_ends,
    test_handover.test_clients_are_handed_over_without_noticing,
)


@pytest.mark.skipif(
    KAFKA is not None, reason="all stories are told on KAFKA already: run without it"
)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
def test_story_holds_on_a_broker(kafka: str, story: Callable[[], None]) -> None:
    with logs_at(kafka):
        story()
