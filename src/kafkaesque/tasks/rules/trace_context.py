"""W3C Trace Context of calls: one trace from the first sender through everything that follows.

Identifiers are arguments. Version 00 of https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One unit of work in a trace."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def header(self) -> bytes:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def parse_trace(header: bytes | None) -> TraceSpan | None:
    """Returns None for headers that the standard says to ignore."""
    if header is None or len(header) > 512:
        return None
    match = _PATTERN.fullmatch(header.decode("ascii", "replace"))
    if match is None or header.startswith(b"ff") or not int(match[1], 16) or not int(match[2], 16):
        return None
    return TraceSpan(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


def child_of(parent: TraceSpan | None, trace_id: str, span_id: str) -> TraceSpan:
    """A new span of the parent's trace or, without a parent, the first span of trace `trace_id`."""
    if parent is None:
        return TraceSpan(trace_id, span_id)
    return TraceSpan(parent.trace_id, span_id, parent.sampled)
