from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.edge.protocol.codes import Violation
from kafkaesque.edge.protocol.positions import Position, parse_position
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId

TOPIC = TopicId(UUID("988d55d5-f0fd-4b3b-91ee-14aff4576aab"))


def test_position_has_the_documented_format() -> None:
    position = Position(TOPIC, PartitionIndex(17), Offset(123456))
    assert str(position) == "mI1V1fD9SzuR7hSv9Fdqqw.17.123456"


@given(st.uuids(), st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1))
@settings(deadline=None, max_examples=60)
def test_positions_round_trip(topic: UUID, partition: int, offset: int) -> None:
    position = Position(TopicId(topic), PartitionIndex(partition), Offset(offset))
    assert parse_position(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mI1V1fD9SzuR7hSv9Fdqqw",
        "mI1V1fD9SzuR7hSv9Fdqqw.17",
        "mI1V1fD9SzuR7hSv9Fdqq.17.1",
        "mI1V1fD9SzuR7hSv9Fdq!w.17.1",
        "mI1V1fD9SzuR7hSv9Fdqqw.x.1",
        "mI1V1fD9SzuR7hSv9Fdqqw.17.-2",
        "mI1V1fD9SzuR7hSv9Fdqqw.17.١",
        "mI1V1fD9SzuR7hSv9Fdqqw.17." + "9" * 19,
        "mI1V1fD9SzuR7hSv9Fdqqw.4294967296.1",
        "m" * 1000,
    ],
)
def test_invalid_position_is_a_violation(text: str) -> None:
    with pytest.raises(Violation):
        parse_position(text)
