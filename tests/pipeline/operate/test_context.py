from __future__ import annotations

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.operate.context import SETTINGS, PipelineSettings, read_settings


def test_settings_are_read_by_their_names() -> None:
    settings = read_settings(
        {"trends.window.s": "120", "trends.slide.s": "30", "archive.keep.days": "7"}
    )
    assert (settings.trends.window_s, settings.trends.slide_s, settings.archive_keep_days) == (
        120,
        30,
        7,
    )
    assert read_settings({}) == PipelineSettings()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"trends.windows": "1"}, "there is no setting 'trends.windows'"),
        ({"trends.top": "none"}, "trends.top"),
        ({"archive.keep.days": "-1"}, "at least 0"),
        ({"trends.window.s": "100"}, "multiple"),
    ],
)
def test_invalid_settings_are_rejected_by_name(values: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        read_settings(values)


def test_every_setting_has_a_description() -> None:
    assert all(item.doc.endswith(".") and item.ours for item in SETTINGS.values())
