from __future__ import annotations

from kafkaesque.events.topics import SOCIAL_CURSORS, SOCIAL_TOPICS


def test_topics_have_distinct_legal_names() -> None:
    names = [spec.name for spec in SOCIAL_TOPICS]
    assert len(set(names)) == len(names)
    assert all(name.replace(".", "").isalnum() for name in names)


def test_cursors_are_compacted_on_one_partition() -> None:
    assert SOCIAL_CURSORS.configs["cleanup.policy"] == "compact"
    assert SOCIAL_CURSORS.partitions == 1
