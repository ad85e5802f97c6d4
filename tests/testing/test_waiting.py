"""Polling for a condition, and the error at the deadline."""

from __future__ import annotations

import pytest

from kafkaesque.testing.waiting import poll_until


def test_polling_returns_the_value_or_names_the_condition() -> None:
    answers = iter([None, None, 7])
    assert poll_until(lambda: next(answers), lambda: "seven", 10) == 7
    with pytest.raises(TimeoutError, match="not within 0 s: seven"):
        poll_until(lambda: None, lambda: "seven", 0)


def test_false_is_polled_again_and_zero_is_a_result() -> None:
    answers = iter([False, False, True])
    assert poll_until(lambda: next(answers), "true", 10) is True
    assert poll_until(lambda: 0, "a number", 0) == 0


def test_error_class_can_be_chosen() -> None:
    with pytest.raises(LookupError, match="not within 0 s: a sign"):
        poll_until(lambda: None, "a sign", 0, error=LookupError)
