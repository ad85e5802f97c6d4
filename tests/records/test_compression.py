"""Compression codecs and their size limits."""

from __future__ import annotations

import contextlib
import resource
import struct

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import InvalidRecord, UnsupportedCompressionType
from kafkaesque.records.batch import Codec
from kafkaesque.records.compression import compress, decompress

MIB = 1024 * 1024
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", list(Codec))
@settings(deadline=None, max_examples=30)
@given(data=st.binary(max_size=3000), repeat=st.integers(1, 60))
@example(data=b"", repeat=1)
def test_data_survives_a_round_trip_within_its_exact_size(
    codec: Codec, data: bytes, repeat: int
) -> None:
    original = data * repeat
    packed = compress(codec, memoryview(original))
    assert bytes(decompress(codec, memoryview(packed), len(original))) == original


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_above_the_limit_is_rejected(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000))
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(InvalidRecord, match="more than 99999 bytes"):
        decompress(codec, packed, 99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bomb_allocates_nothing_beyond_the_limit(codec: Codec) -> None:
    # Zero pages are never touched, so making the bomb does not raise the peak that is measured.
    bomb = compress(codec, bytes(256 * MIB))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidRecord):
        decompress(codec, bomb, 4 * MIB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 24 * 1024


def test_raw_snappy_of_librdkafka_is_accepted_as_well() -> None:
    packed = bytes(cramjam.snappy.compress_raw(b"hello" * 1000))
    assert bytes(decompress(Codec.SNAPPY, packed, 5000)) == b"hello" * 1000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x82SNAPPY\x00",
        b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"\x00\x00",
        b"\x82SNAPPY\x00" + struct.pack(">iiI", 1, 1, 2**32 - 1),
        b"\x82SNAPPY\x00" + struct.pack(">iiI", 1, 1, 0),
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\x7f",
    ],
    ids=["empty", "no-version", "cut-length", "huge-block", "empty-block", "4GiB", "2MiB-in-3"],
)
def test_malformed_snappy_is_rejected(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, data, 64 * MIB)


def test_snappy_block_that_claims_more_than_its_format_can_hold_is_not_allocated_for() -> None:
    with pytest.raises(InvalidRecord, match="3 bytes claims 2097151 bytes"):
        decompress(Codec.SNAPPY, b"\xff\xff\x7f", 64 * MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_input_raises_invalid_record_or_yields_bounded_bytes(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"some text " * 50 + bytes(range(256))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    with contextlib.suppress(InvalidRecord):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=300))
def test_noise_raises_invalid_record_or_yields_bounded_bytes(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(InvalidRecord):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_named_as_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"")
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"", 10)
