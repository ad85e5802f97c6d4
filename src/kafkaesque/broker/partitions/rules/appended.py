"""What an append answers, and what is appended besides batches."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kafkaesque.model.ids import Offset, TimestampMs


class Appended(NamedTuple):
    """Where a batch stands in the log; `end_offset` is the offset after its last record."""

    base_offset: Offset
    end_offset: Offset
    append_time_ms: TimestampMs
    log_start_offset: Offset


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """A control entry: records before `offset` are deleted, on every replica."""

    offset: int
