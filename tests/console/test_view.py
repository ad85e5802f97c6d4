"""Properties that a topic view computes."""

from __future__ import annotations

import pytest

from kafkaesque.console.rules.view import TopicView

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS


@pytest.mark.parametrize(
    ("oldest_ms", "retention_ms", "cleanup", "left_ms"),
    [
        pytest.param(NOW_MS - HOUR_MS, 24 * HOUR_MS, "delete", 23 * HOUR_MS, id="a day kept"),
        pytest.param(NOW_MS - 30 * HOUR_MS, 24 * HOUR_MS, "delete", 0, id="due"),
        pytest.param(NOW_MS - HOUR_MS, 24 * HOUR_MS, "compact", None, id="compacted"),
        pytest.param(NOW_MS, 24 * HOUR_MS, "compact,delete", 24 * HOUR_MS, id="both"),
        pytest.param(NOW_MS, -1, "delete", None, id="for ever"),
        pytest.param(None, 24 * HOUR_MS, "delete", None, id="empty"),
    ],
)
def test_time_until_the_oldest_record_expires(
    oldest_ms: int | None, retention_ms: int, cleanup: str, left_ms: int | None
) -> None:
    topic = TopicView("t", "", False, [], retention_ms=retention_ms, cleanup=cleanup)
    topic.oldest_ms = oldest_ms
    assert topic.retention_left_ms(NOW_MS) == left_ms
