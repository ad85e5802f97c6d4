from __future__ import annotations

import pytest

from kafkaesque.events.social import TAGS_MAX
from kafkaesque.sources.rules.hashtags import HashtagFilter, distinct, normalise, tags_in_text


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("#Raft", "raft"),
        ("  STRASSE ", "strasse"),
        ("Straße", "strasse"),
        ("ＫＡＦＫＡ", "kafka"),
        ("猫", "猫"),
        ("", ""),
        ("#", ""),
        ("two words", ""),
        ("a#b", ""),
        ("x" * 500, ""),
    ],
)
def test_tags_are_compared_without_case_and_width(tag: str, expected: str) -> None:
    assert normalise(tag) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first light on the #raft log", ["raft"]),
        ("#a, #b.#c", ["a", "b", "c"]),
        ("今日の #アニメ ＃猫", ["アニメ", "猫"]),
        ("सुबह की #चाय!", ["चाय"]),
        ("issue#7 and #7 are none", []),
        ("it&#39;s https://e.org/#part none", []),
        ("#1st is one", ["1st"]),
        ("", []),
    ],
)
def test_tags_are_found_in_text(text: str, expected: list[str]) -> None:
    assert tags_in_text(text) == expected


def test_each_tag_is_kept_once_in_order_and_not_too_many() -> None:
    assert distinct(["B", "a", "b", " ", "#A"]) == ("b", "a")
    assert len(distinct(f"t{n}" for n in range(1000))) == TAGS_MAX


def test_filter_without_tags_matches_every_post() -> None:
    assert HashtagFilter().matches(())
    assert HashtagFilter(["#Raft"]).matches(("raft", "log"))
    assert not HashtagFilter(["#Raft"]).matches(())
