"""The public names of kafkaesque.testing."""

from __future__ import annotations

import pytest

import kafkaesque.testing


def test_every_public_name_is_there() -> None:
    for name in kafkaesque.testing.__all__:
        assert getattr(kafkaesque.testing, name) is not None
        assert name in dir(kafkaesque.testing)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brokr'"):
        _ = kafkaesque.testing.Brokr
