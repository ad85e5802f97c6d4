"""Compares expected records with received ones, and reports the difference to a person."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher

from kafkaesque.testing.records import Content, Received, RecordFields, header_pairs, matches

_SHOWN_LENGTH_MAX = 120
_SHOWN_ROWS_MAX = 40


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison; `rows` are a mark and a record each, in order."""

    rows: tuple[tuple[str, str], ...]

    @property
    def is_equal(self) -> bool:
        return all(mark == SAME for mark, _ in self.rows)

    def report(self, topic: str, within_s: float) -> str:
        """The message of a failing test, in several lines."""
        missing = sum(mark == MISSING for mark, _ in self.rows)
        unexpected = sum(mark == UNEXPECTED for mark, _ in self.rows)
        counts = [f"{missing} missing"] * (missing > 0)
        counts += [f"{unexpected} unexpected"] * (unexpected > 0)
        waited = f" after {within_s:g} s" * (missing > 0)
        lines = [f"topic {topic}: {', '.join(counts)}{waited}"]
        lines += [f"  {mark} {text}" for mark, text in self.rows[:_SHOWN_ROWS_MAX]]
        if len(self.rows) > _SHOWN_ROWS_MAX:
            lines.append(f"  ... and {len(self.rows) - _SHOWN_ROWS_MAX} more rows")
        lines.append(
            f"  ({SAME!r} came as expected, {MISSING!r} missing, {UNEXPECTED!r} unexpected)"
        )
        return "\n".join(lines)


SAME, MISSING, UNEXPECTED = " ", "-", "+"


def compare(
    expected: Sequence[RecordFields], received: Sequence[Received], *, in_order: bool
) -> Comparison:
    return _in_order(expected, received) if in_order else _in_any_order(expected, received)


def _in_order(expected: Sequence[RecordFields], received: Sequence[Received]) -> Comparison:
    # A record may match several expectations (each may name other fields), so each record gets the
    # number of the first expectation it matches, which SequenceMatcher can compare.
    wanted = [_first_equal(fields, expected) for fields in expected]
    came = [_first_matching(expected, record) for record in received]
    if len(expected) == len(received) and all(map(matches, expected, received)):
        return Comparison(tuple((SAME, show_record(record)) for record in received))
    rows: list[tuple[str, str]] = []
    for kind, low, high, start, end in SequenceMatcher(None, wanted, came, False).get_opcodes():
        if kind == "equal":
            rows += [(SAME, show_record(record)) for record in received[start:end]]
        else:
            rows += [(MISSING, show_fields(fields)) for fields in expected[low:high]]
            rows += [(UNEXPECTED, show_record(record)) for record in received[start:end]]
    return Comparison(tuple(rows))


def _first_equal(fields: RecordFields, expected: Sequence[RecordFields]) -> int:
    return next(index for index, other in enumerate(expected) if other == fields)


def _first_matching(expected: Sequence[RecordFields], record: Received) -> int:
    found = (index for index, fields in enumerate(expected) if matches(fields, record))
    return next(found, -1)


def _in_any_order(expected: Sequence[RecordFields], received: Sequence[Received]) -> Comparison:
    remaining = list(received)
    rows: list[tuple[str, str]] = []
    # The most specific expectations choose first, so that a bare value does not take a record that
    # an expectation with a key needs.
    for fields in sorted(expected, key=len, reverse=True):
        found = next((record for record in remaining if matches(fields, record)), None)
        if found is None:
            rows.append((MISSING, show_fields(fields)))
        else:
            remaining.remove(found)
            rows.append((SAME, show_record(found)))
    rows += [(UNEXPECTED, show_record(record)) for record in remaining]
    return Comparison(tuple(rows))


def show_fields(fields: RecordFields) -> str:
    parts = [f"{name}={_shown(fields[name])}" for name in ("key", "value") if name in fields]
    if "headers" in fields:
        parts.append(f"headers={_shown_headers(header_pairs(fields['headers']))}")
    parts += [f"{name}={fields[name]}" for name in ("partition", "timestamp") if name in fields]
    return " ".join(parts)


def show_record(record: Received) -> str:
    headers = f" headers={_shown_headers(record.headers)}" if record.headers else ""
    return (
        f"key={_shown(record.key)} value={_shown(record.value)}{headers} "
        f"(partition {record.partition}, offset {record.offset})"
    )


def _shown_headers(pairs: Sequence[tuple[str, bytes | None]]) -> str:
    return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in pairs) + "}"


def _shown(content: Content) -> str:
    """As text if it is UTF-8, truncated if it is long."""
    if isinstance(content, bytes):
        with suppress(UnicodeDecodeError):
            content = content.decode()
    text = repr(content)
    if len(text) <= _SHOWN_LENGTH_MAX:
        return text
    return f"{text[:_SHOWN_LENGTH_MAX]}... ({len(text)} characters)"
