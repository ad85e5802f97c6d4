"""Settings as strings. The other operations are tested in test_broker.py and test_clock.py."""

from __future__ import annotations

from kafkaesque.testing.operations import setting_texts


def test_plain_values_become_the_strings_that_kafka_uses() -> None:
    plain = {
        "yes": True,
        "no": False,
        "number": 7,
        "text": "a b",
        "list": ["compact", "delete"],
        "none": None,
    }
    assert setting_texts(plain) == {
        "yes": "true",
        "no": "false",
        "number": "7",
        "text": "a b",
        "list": "compact,delete",
    }
