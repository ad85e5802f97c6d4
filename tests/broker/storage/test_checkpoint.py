"""The two small files of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.checkpoint import (
    SYNC_POINT_SIZE_BYTES,
    LogStructure,
    SyncPoint,
    decode_sync_point,
    encode_sync_point,
    load_structure,
    save_structure,
)
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts

FACTS = SegmentFacts(5, 1000, 77, 88, 500, 3)
POINT = SyncPoint(99, FACTS, (4, 60))


def test_sync_point_survives_and_damage_to_any_byte_is_detected() -> None:
    data = encode_sync_point(POINT)
    assert len(data) == SYNC_POINT_SIZE_BYTES
    assert decode_sync_point(data) == POINT
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        assert decode_sync_point(bytes(damaged)) is None
        assert decode_sync_point(data[:position]) is None
    assert decode_sync_point(bytes(SYNC_POINT_SIZE_BYTES)) is None


def test_structure_survives(tmp_path: Path) -> None:
    assert load_structure(str(tmp_path)) is None
    structure = LogStructure(7, ((0, 0), (4, 60)), (FACTS,))
    save_structure(str(tmp_path), structure)
    assert load_structure(str(tmp_path)) == structure


@pytest.mark.parametrize("content", [b"", b"[]x", b'["a"]', b"[1,2]", b"\xff"])
def test_structure_of_another_shape_is_damaged(tmp_path: Path, content: bytes) -> None:
    durable_state.save(str(tmp_path / "structure"), content)
    with pytest.raises(durable_state.StateDamaged):
        load_structure(str(tmp_path))
