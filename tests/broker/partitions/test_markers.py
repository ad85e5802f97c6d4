"""Control batches that end transactions."""

from __future__ import annotations

import pytest

from kafkaesque.broker.partitions.rules.markers import Marker, decode_marker, encode_marker
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import read_header, verify_crc
from kafkaesque.records.codec import Record, encode_batch

NOW = TimestampMs(1_700_000_000_000)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_read_back_and_is_a_control_batch(is_commit: bool) -> None:
    batch = encode_marker(ProducerId(7), ProducerEpoch(3), Marker(is_commit, 12), NOW)
    header = read_header(batch)
    verify_crc(batch, header)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert decode_marker(batch) == Marker(is_commit, 12)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"\0\0\0\5", b"\0\0\0\0\0\1"), (b"\0\0\0\1", b"")]
)
def test_control_record_of_another_kind_is_not_a_marker(key: bytes, value: bytes) -> None:
    assert (
        decode_marker(encode_batch([Record(Offset(0), NOW, key, value)], is_control=True)) is None
    )


def test_control_batch_that_cannot_be_read_is_corrupt() -> None:
    batch = encode_marker(ProducerId(7), ProducerEpoch(3), Marker(True, 0), NOW)
    with pytest.raises(CorruptMessage):
        decode_marker(batch[:-3])
