from __future__ import annotations

import pytest

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.sources.config import SOURCE_SETTINGS, SourceConfig, source_config


def test_defaults_match_the_settings() -> None:
    assert source_config({}) == SourceConfig()
    assert all(item.doc for item in SOURCE_SETTINGS.values())


def test_values_are_parsed_by_type() -> None:
    config = source_config({"x.enterprise": "true", "backoff.scale": "0.5", "deletes": "all"})
    assert (config.x_enterprise, config.backoff_scale, config.deletes) == (True, 0.5, "all")


@pytest.mark.parametrize(
    ("name", "text"),
    [("no.such", "1"), ("deletes", "some"), ("batch.posts.max", "0"), ("backoff.scale", "x")],
)
def test_wrong_settings_are_named(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        source_config({name: text})
