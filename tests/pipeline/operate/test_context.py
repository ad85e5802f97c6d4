from __future__ import annotations

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.operate.context import KNOBS, Knobs, read_knobs


def test_settings_are_read_by_their_names() -> None:
    knobs = read_knobs({"trends.window.s": "120", "trends.slide.s": "30", "archive.keep.days": "7"})
    assert (knobs.trends.window_s, knobs.trends.slide_s, knobs.archive_keep_days) == (120, 30, 7)
    assert read_knobs({}) == Knobs()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"trends.windows": "1"}, "there is no setting 'trends.windows'"),
        ({"trends.top": "none"}, "trends.top"),
        ({"archive.keep.days": "-1"}, "at least 0"),
        ({"trends.window.s": "100"}, "multiple"),
    ],
)
def test_wrong_settings_are_refused_with_their_name(values: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        read_knobs(values)


def test_every_setting_has_a_description() -> None:
    assert all(item.doc.endswith(".") and item.ours for item in KNOBS.values())
