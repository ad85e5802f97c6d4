"""Compiled and pure functions behave the same for any input."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.storage.scanning import ANY, Cut, cut_batches
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.model.limits import BATCH_SIZE_BYTES_MAX
from kafkaesque.records.batch import BatchHeader, plain_header, read_header, stamp, verify_crc
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.records.crc32c import crc32c
from kafkaesque.records.layout import HEADER
from kafkaesque.records.native import pure

compiled_only = pytest.mark.skipif(
    pure(crc32c) is crc32c,
    reason="nothing is compiled: apt install gcc python3-dev, then make clean setup",
)

INTEGERS = st.one_of(st.integers(-2, 700), st.sampled_from([2**31 - 1, 2**63 - 1, 2**63, -(2**70)]))


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """What came out: a value with its type, or an error with all that it says."""
    try:
        value = function(*arguments)
    except Exception as error:  # noqa: BLE001 - whichever it is, both must raise it
        return type(error), *error.args
    return type(value), value


def run_of(sizes: list[int]) -> bytearray:
    """Consecutive batches, with a record of each size given, at offsets 0, 2, 4, ..."""
    chunk = bytearray()
    for number, size in enumerate(sizes):
        records = [Record(Offset(0), TimestampMs(1000 + number), None, bytes([number]) * size)] * 2
        batch = encode_batch(records, base_offset=Offset(2 * number))
        stamp(batch, read_header(batch), Offset(2 * number), LeaderEpoch(3))
        chunk += batch
    return chunk


@st.composite
def hostile_runs(draw: st.DrawFn) -> bytearray:
    """Runs of batches with a few bytes changed, or cut, or nothing like a batch at all."""
    if draw(st.booleans()):
        chunk = run_of(draw(st.lists(st.integers(0, 200), max_size=4)))
    else:
        chunk = bytearray(draw(st.binary(max_size=200)))
    for _ in range(draw(st.integers(0, 3))):
        if chunk:
            # The first bytes decide: offset, length, magic, checksum, delta.
            place = draw(st.integers(0, min(len(chunk), 70) - 1))
            chunk[place] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    return chunk[: draw(st.integers(0, len(chunk)))] if draw(st.booleans()) else chunk


@compiled_only
@settings(deadline=None, max_examples=300)
@given(hostile_runs(), INTEGERS)
def test_header_is_read_or_rejected_alike(chunk: bytearray, position: int) -> None:
    for buffer in (bytes(chunk), chunk, memoryview(chunk)):
        assert outcome(read_header, buffer) == outcome(pure(read_header), buffer)
        if position >= 0:
            arguments = (buffer, position)
            assert outcome(read_header, *arguments) == outcome(pure(read_header), *arguments)


@compiled_only
@settings(deadline=None, max_examples=300)
@given(hostile_runs(), st.integers(0, 300), st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_checksum_is_verified_alike(
    chunk: bytearray, position: int, size_bytes: int, crc: int
) -> None:
    header = BatchHeader._make(HEADER.unpack(run_of([10])[: HEADER.size]))
    right = google_crc32c.value(bytes(chunk[position + 21 :]))
    for claimed in (size_bytes, len(chunk) - position, len(chunk) - position + 1):
        for checksum in (crc, right):
            altered = header._replace(size_bytes=max(claimed, 61), crc=checksum)
            arguments = (chunk, altered, position)
            assert outcome(verify_crc, *arguments) == outcome(pure(verify_crc), *arguments)


@compiled_only
@settings(deadline=None, max_examples=500)
@given(hostile_runs(), INTEGERS, INTEGERS, INTEGERS, st.booleans(), INTEGERS, INTEGERS)
def test_batches_are_cut_alike(
    chunk: bytearray,
    offset: int,
    limit_offset: int,
    max_bytes: int,
    at_least_one: bool,
    epoch: int,
    start_offset: int,
) -> None:
    wanted = (offset, limit_offset, max_bytes, at_least_one)
    arguments = (bytes(chunk), *wanted, epoch, start_offset)
    assert outcome(cut_batches, *arguments) == outcome(pure(cut_batches), *arguments)


def assert_cut_alike(chunk: bytes, limits: list[tuple[int, int, int, bool]]) -> None:
    epoch = read_header(run_of([1])).leader_epoch
    for wanted in limits:
        for known in ((ANY, ANY), (epoch, 0), (epoch + 1, 0), (ANY, 1)):
            arguments = (chunk, *wanted, *known)
            assert outcome(cut_batches, *arguments) == outcome(pure(cut_batches), *arguments)


@compiled_only
def test_run_that_ends_anywhere_is_cut_alike() -> None:
    chunk = bytes(run_of([1, 30, 5]))
    size = read_header(chunk).size_bytes
    limits = [
        (offset, limit_offset, max_bytes, at_least_one)
        for offset in range(8)
        for limit_offset in (3, 6)
        for max_bytes in (0, size, 2 * size, 10**6)
        for at_least_one in (True, False)
    ]
    for length in range(len(chunk) + 1):
        assert_cut_alike(chunk[:length], limits)


@compiled_only
@pytest.mark.parametrize("value", [0, 1, 2, 0x7F, 0x80, 0xFF])
def test_run_with_one_byte_changed_is_cut_alike(value: int) -> None:
    sound = run_of([1, 30, 5])
    limits = [(offset, 6, max_bytes, True) for offset in range(6) for max_bytes in (100, 10**6)]
    for place in range(len(sound)):
        chunk = bytearray(sound)
        chunk[place] = value
        assert_cut_alike(bytes(chunk), limits)


@compiled_only
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 40), INTEGERS, INTEGERS)
def test_batch_is_stamped_alike(size: int, base_offset: int, epoch: int) -> None:
    ours, theirs = bytearray(size), bytearray(size)
    arguments = (read_header(run_of([5])), base_offset, epoch)
    result = outcome(stamp, ours, *arguments)
    assert result == outcome(pure(stamp), theirs, *arguments)
    if result[0] is BatchHeader:
        assert ours == theirs


@compiled_only
@pytest.mark.parametrize("value", [0, 1, 2, 0x7F, 0x80, 0xFF])
def test_both_versions_accept_the_same_batches_from_producers(value: int) -> None:
    sound = run_of([30])
    stamp(sound, read_header(sound), Offset(0), LeaderEpoch(-1))
    time_ms = read_header(sound).base_timestamp
    for place in range(len(sound)):
        batch = bytearray(sound)
        batch[place] = value
        for with_checksum in (False, True):
            if with_checksum:
                batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4)
            for limits in ((10**6, time_ms, time_ms), (len(sound) - 1, 0, 2**62), (10**6, 0, 0)):
                arguments = (bytes(batch), *limits)
                assert outcome(plain_header, *arguments) == outcome(pure(plain_header), *arguments)


@compiled_only
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10_000), st.integers(0, 20), st.integers(0, 2**32))
def test_checksum_is_the_same_at_every_size_and_alignment(size: int, at: int, seed: int) -> None:
    data = (seed.to_bytes(5) * (size // 5 + 5))[: size + at]
    view = memoryview(data)[at:]
    assert crc32c(view) == pure(crc32c)(view) == google_crc32c.value(bytes(view))


@compiled_only
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (read_header, (memoryview(b"x" * 200)[::2],)),
        (read_header, ("text",)),
        (read_header, ()),
        (crc32c, (None,)),
        (cut_batches, (b"", None, 0, 0, True, ANY, ANY)),
        (cut_batches, (b"", 0, 0, 0, True, None, ANY)),
        (cut_batches, (b"", 0, 0, 0, True)),
        (verify_crc, (b"", (1, 2))),
        (stamp, (b"read-only" * 10, read_header(run_of([5])), 0, 0)),
        (plain_header, (b"", None, 0, 0)),
        (plain_header, (b"" * 61, 2**70, 0, 0)),
    ],
)
def test_what_is_no_argument_is_rejected_alike(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    assert outcome(function, *arguments) == outcome(pure(function), *arguments)


@compiled_only
def test_arguments_may_be_named() -> None:
    chunk = bytes(run_of([5, 5]))
    assert read_header(buffer=chunk, position=0) == read_header(chunk)
    whole = cut_batches(
        chunk, Offset(0), Offset(9), max_bytes=10**6, at_least_one=True, epoch=ANY, start_offset=0
    )
    assert whole == Cut(0, len(chunk), Offset(4), 0, None, 0)


@compiled_only
def test_the_common_case_does_not_need_the_pure_functions() -> None:
    from kafkaesque.records import _native

    def never(*_: Any) -> Any:
        raise AssertionError("the pure function was asked")

    chunk = run_of([100, 100_000, 0])
    header = _native.read_header(never, BatchHeader, BATCH_SIZE_BYTES_MAX)(chunk)
    assert (header, type(header)) == (pure(read_header)(chunk), BatchHeader)
    _native.verify_crc(never)(chunk, header)
    stamped = _native.stamp(never, BatchHeader)(chunk, header, 0, 3)
    assert (stamped, type(stamped)) == (read_header(chunk), BatchHeader)
    plain = _native.plain_header(never, BatchHeader, BATCH_SIZE_BYTES_MAX)
    assert plain(chunk[: header.size_bytes], 10**6, 0, 2**62) == stamped
    cut = _native.cut_batches(never, Cut, BATCH_SIZE_BYTES_MAX)
    assert cut(chunk, 0, 6, 10**6, True, ANY, 0) == Cut(0, len(chunk), Offset(6), 0, None, 0)
    assert cut(chunk[:-1], 0, 6, 10**6, True, ANY, ANY).end < len(chunk)
    assert _native.crc32c(never)(b"123456789") == 0xE3069283


@compiled_only
@pytest.mark.parametrize("arguments", [(), (len,), (len, dict, 1), (len, BatchHeader, "1")])
def test_maker_rejects_what_it_cannot_bind(arguments: tuple[Any, ...]) -> None:
    from kafkaesque.records import _native

    with pytest.raises(TypeError):
        _native.read_header(*arguments)


@pytest.mark.parametrize(("wish", "may_be_compiled"), [("1", False), ("modules", True), ("", True)])
def test_environment_can_ask_for_pure_functions(wish: str, may_be_compiled: bool) -> None:
    program = "from kafkaesque.records import native; print(native.CHECKSUM_BY)"
    environment = {**os.environ, "KAFKAESQUE_PURE": wish}
    chosen = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    is_built = importlib.util.find_spec("kafkaesque.records._native") is not None
    assert (chosen != "google-crc32c") is (may_be_compiled and is_built)
