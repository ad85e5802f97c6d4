from __future__ import annotations

import pytest

from kafkaesque.tasks.rules.trace_context import TraceSpan, child_of, parse_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def test_a_header_survives() -> None:
    span = parse_trace(f"00-{TRACE}-{SPAN}-01".encode())
    assert span == TraceSpan(TRACE, SPAN, True)
    assert span.header() == f"00-{TRACE}-{SPAN}-01".encode()


def test_a_child_stays_in_the_trace_and_keeps_the_decision_to_sample() -> None:
    child = child_of(TraceSpan(TRACE, SPAN, False), "ignored", "1" * 16)
    assert child == TraceSpan(TRACE, "1" * 16, False)
    assert child_of(None, TRACE, SPAN) == TraceSpan(TRACE, SPAN, True)


def test_a_later_version_with_more_fields_is_read() -> None:
    assert parse_trace(f"cc-{TRACE}-{SPAN}-01-what".encode()) == TraceSpan(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "header",
    [None, b"", b"00", b"\xff", f"ff-{TRACE}-{SPAN}-01".encode(), f"00-{'0' * 32}-{SPAN}-01".encode(),
     f"00-{TRACE}-{'0' * 16}-01".encode(), f"00-{TRACE.upper()}-{SPAN}-01".encode(), b"0" * 10_000],
)  # fmt: skip
def test_what_the_standard_says_to_ignore_is_ignored(header: bytes | None) -> None:
    assert parse_trace(header) is None
