"""Incremental fetch sessions: ids, epochs, bounds."""

from __future__ import annotations

from itertools import count

import pytest

from kafkaesque.broker.server.rules.fetch_sessions import FetchSessions
from kafkaesque.model.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)


def sessions(most: int = 2) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(most, lambda: next(numbers))


def test_epochs_follow_one_another() -> None:
    all_sessions = sessions()
    session = all_sessions.create(uses_topic_ids=True)
    assert session is not None
    for epoch in (1, 2, 3):
        assert all_sessions.take(session.session_id, epoch, uses_topic_ids=True) is session


def test_wrong_epoch_is_refused_and_leaves_the_session_usable() -> None:
    all_sessions = sessions()
    session = all_sessions.create(uses_topic_ids=True)
    assert session is not None
    with pytest.raises(InvalidFetchSessionEpoch):
        all_sessions.take(session.session_id, 2, uses_topic_ids=True)
    all_sessions.take(session.session_id, 1, uses_topic_ids=True)


def test_epoch_wraps_to_one_after_its_maximum() -> None:
    all_sessions = sessions()
    session = all_sessions.create(uses_topic_ids=True)
    assert session is not None
    session.epoch = 2**31 - 1
    all_sessions.take(session.session_id, 2**31 - 1, uses_topic_ids=True)
    assert session.epoch == 1


def test_unknown_and_closed_sessions_are_not_found() -> None:
    all_sessions = sessions()
    session = all_sessions.create(uses_topic_ids=False)
    assert session is not None
    all_sessions.close(session.session_id)
    with pytest.raises(FetchSessionIdNotFound):
        all_sessions.take(session.session_id, 1, uses_topic_ids=False)


def test_client_cannot_change_from_names_to_ids_within_a_session() -> None:
    all_sessions = sessions()
    session = all_sessions.create(uses_topic_ids=False)
    assert session is not None
    with pytest.raises(FetchSessionTopicIdError):
        all_sessions.take(session.session_id, 1, uses_topic_ids=True)


def test_least_recently_used_session_makes_room() -> None:
    all_sessions = sessions(most=2)
    first, second = all_sessions.create(False), all_sessions.create(False)
    assert first is not None
    assert second is not None
    all_sessions.take(first.session_id, 1, uses_topic_ids=False)
    all_sessions.create(False)
    assert len(all_sessions) == 2
    all_sessions.take(first.session_id, 2, uses_topic_ids=False)
    with pytest.raises(FetchSessionIdNotFound):
        all_sessions.take(second.session_id, 1, uses_topic_ids=False)


def test_no_slots_means_no_sessions() -> None:
    assert sessions(most=0).create(uses_topic_ids=True) is None
