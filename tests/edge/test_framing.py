from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import Frame, FrameParser, encode_frame


@given(st.lists(st.tuples(st.integers(0, 65_535), st.binary(max_size=50)), max_size=5), st.data())
@settings(deadline=None, max_examples=60)
def test_frames_round_trip_however_the_bytes_are_split(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(opcode, payload) for opcode, payload in frames)
    parser = FrameParser()
    found: list[Frame] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += parser.feed(stream[:size])
        stream = stream[size:]
    assert found == frames
    assert parser.rest == b""


def test_parser_continues_from_the_rest_of_another() -> None:
    whole = encode_frame(5, b"abc") + encode_frame(6, b"defg")
    first = FrameParser()
    assert list(first.feed(whole[:-2])) == [(5, b"abc")]
    assert list(FrameParser(rest=first.rest).feed(whole[-2:])) == [(6, b"defg")]


def test_wrong_version_is_rejected_at_the_first_byte() -> None:
    with pytest.raises(Violation) as refused:
        list(FrameParser().feed(b"\x02"))
    assert refused.value.code is CloseCode.BAD_VERSION


def test_oversized_frame_is_rejected_by_its_header_alone() -> None:
    parser = FrameParser(size_bytes_max=10)
    with pytest.raises(Violation) as refused:
        list(parser.feed(encode_frame(1, b"x" * 11)[:7]))
    assert refused.value.code is CloseCode.TOO_LARGE
    assert list(FrameParser(size_bytes_max=10).feed(encode_frame(1, b"x" * 10)))


def test_frames_before_an_invalid_one_are_yielded() -> None:
    parser = FrameParser()
    frames = parser.feed(encode_frame(1, b"a") + b"\xff")
    assert next(frames) == (1, b"a")
    with pytest.raises(Violation):
        next(frames)
