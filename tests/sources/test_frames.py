from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.sources.rules.frames import (
    KEEPALIVE,
    MESSAGE,
    OVERSIZED,
    EventSplitter,
    LineSplitter,
    StreamFrame,
    frame,
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.lists(st.binary(min_size=1, max_size=12).map(lambda b: b.hex().encode()), max_size=8),
    st.lists(st.integers(0, 1000), max_size=6),
)
@settings(deadline=None, max_examples=200)
def test_lines_are_the_same_however_the_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\r\n" for line in lines)
    splitter = LineSplitter(1000)
    got = [item for chunk in chunks(data, cuts) for item in splitter.feed(chunk)]
    assert got == [frame(MESSAGE, line) for line in lines]


def test_empty_line_is_a_keepalive() -> None:
    assert list(LineSplitter(10).feed(b"\r\n\na\n")) == [
        frame(KEEPALIVE, b""),
        frame(KEEPALIVE, b""),
        frame(MESSAGE, b"a"),
    ]


def test_line_that_is_too_long_is_skipped_and_the_next_is_read() -> None:
    splitter = LineSplitter(10)
    got = []
    for chunk in (b"x" * 8, b"x" * 5000, b"x\nnext\n"):
        got += list(splitter.feed(chunk))
    assert [item.event for item in got] == [OVERSIZED, MESSAGE]
    assert got[0].size_bytes == 5009
    assert len(got[0].data) <= 11
    assert got[1].data == b"next"


def test_line_of_exactly_the_bound_is_read() -> None:
    assert list(LineSplitter(3).feed(b"abc\r\n")) == [frame(MESSAGE, b"abc")]


def test_endless_line_takes_bounded_memory() -> None:
    splitter = LineSplitter(100)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 10_000)) == []
    assert len(splitter._rest) <= 101


def test_events_are_read_with_their_names_and_comments_are_keepalives() -> None:
    data = (
        b':thump\nevent: update\ndata: {"id":1}\n\nevent: delete\ndata:7\n\ndata: a\ndata: b\n\n\n'
    )
    assert list(EventSplitter(100).feed(data)) == [
        frame(KEEPALIVE, b""),
        frame("update", b'{"id":1}'),
        frame("delete", b"7"),
        frame(MESSAGE, b"a\nb"),
    ]


@given(st.lists(st.integers(0, 1000), max_size=8))
@settings(deadline=None, max_examples=100)
def test_events_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    data = b"event: update\ndata: one\n\n:x\nevent: delete\r\ndata: 7\r\n\r\n"
    splitter = EventSplitter(100)
    got = [item for chunk in chunks(data, cuts) for item in splitter.feed(chunk)]
    assert got == [frame("update", b"one"), frame(KEEPALIVE, b""), frame("delete", b"7")]


def test_event_that_is_too_large_is_reported_once_and_the_next_is_read() -> None:
    data = b"event: update\n" + b"data: " + b"x" * 500 + b"\n\nevent: delete\ndata: 7\n\n"
    got = list(EventSplitter(100).feed(data))
    assert [item.event for item in got] == [OVERSIZED, "delete"]
    many = b"".join(b"data: %s\n" % (b"y" * 60) for _ in range(50)) + b"\n"
    assert [item.event for item in EventSplitter(100).feed(many)] == [OVERSIZED]


@given(st.lists(st.binary(max_size=60), max_size=10))
@settings(deadline=None, max_examples=200)
def test_splitters_never_raise(data: list[bytes]) -> None:
    for splitter in (LineSplitter(20), EventSplitter(20)):
        for chunk in data:
            for item in splitter.feed(chunk):
                assert isinstance(item, StreamFrame)
