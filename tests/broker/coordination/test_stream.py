from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaesque.broker.coordination.stream import FrameSplitter
from kafkaesque.model.errors import ProtocolError


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(1, 9))
def test_frames_are_complete_however_the_stream_is_split(frames: list[bytes], step: int) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = FrameSplitter(20)
    found = []
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    assert found == frames


@pytest.mark.parametrize("size", [-1, 21, 2**31 - 1])
def test_length_that_no_frame_may_have_is_refused_at_once(size: int) -> None:
    reader = FrameSplitter(20)
    reader.feed(struct.pack(">i", size))
    with pytest.raises(ProtocolError):
        reader.next_frame()


def test_first_word_is_looked_at_without_taking_it() -> None:
    reader = FrameSplitter(20)
    reader.feed(b"ruok")
    assert reader.first_word() == b"ruok"
    assert reader.first_word() == b"ruok"
