"""Stories of the gateway that always run on a real broker as well as in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.gateway import test_handover, test_story
from tests.gateway.logs import KAFKA, logs_at

STORIES: tuple[Callable[[], None], ...] = (
    test_story.test_a_command_is_acknowledged_and_its_result_is_an_event,
    test_story.test_an_account_is_registered_once_and_logs_in_with_its_password,
    test_story.test_a_client_resumes_on_another_gateway_without_a_gap,
    test_story.test_a_position_that_retention_deleted_is_an_invalid_session,
    test_story.test_events_of_a_slow_client_stay_in_the_log_and_none_is_lost,
    test_story.test_room_subscriptions_survive_a_reconnect_without_a_gap,
    test_story.test_a_logged_out_token_is_refused_on_every_gateway,
    test_story.test_a_user_on_two_gateways_is_present_until_both_connections_close,
    test_story.test_drain_sends_clients_to_other_gateways_and_nothing_is_missed,
    test_story.test_unknown_version_is_refused_and_a_known_one_has_its_own_back_ends,
    test_handover.test_clients_are_handed_over_without_noticing,
)


@pytest.mark.skipif(KAFKA is not None, reason="all stories run on KAFKA already: run without it")
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
def test_story_holds_on_a_broker(kafka: str, story: Callable[[], None]) -> None:
    with logs_at(kafka):
        story()
