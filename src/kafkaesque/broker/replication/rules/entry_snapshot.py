"""What stands before a group's first entry, as the state of a Raft snapshot.

Pure. Where the log goes on; what its owner adds; and, of a log whose beginning was cleaned, where
the batches begin that are no entries any more: whoever installs the snapshot has to fetch those.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kafkaesque.broker.raft.types import LogIndex, Snapshot
from kafkaesque.model.errors import check
from kafkaesque.model.ids import NO_OFFSET, Offset


@dataclass(frozen=True, slots=True)
class OwnerState:
    """What the entries up to `index` amount to, for an owner that can say so in a few bytes."""

    index: LogIndex
    data: bytes


class _State(msgspec.Struct, frozen=True):
    offset: Offset
    owner: bytes = b""
    first_offset: Offset = NO_OFFSET
    """Of the batches before `offset`; -1 if there are none."""


_decode_state = msgspec.msgpack.Decoder(_State).decode


def encode_state(offset: Offset, owner: bytes, first_offset: Offset = NO_OFFSET) -> bytes:
    is_kept = 0 <= first_offset < offset
    return msgspec.msgpack.encode(_State(offset, owner, first_offset if is_kept else NO_OFFSET))


def kept_range(snapshot: Snapshot) -> tuple[Offset, Offset]:
    """Which batches stand before the first entry behind a snapshot: [first, end), often none."""
    state = _state_of(snapshot)
    return (state.offset if state.first_offset < 0 else state.first_offset), state.offset


def owner_data(snapshot: Snapshot) -> bytes:
    """What the owner added to a snapshot."""
    return _state_of(snapshot).owner


def _state_of(snapshot: Snapshot) -> _State:
    check(isinstance(snapshot.state, bytes), "a snapshot's state is bytes")
    return _decode_state(snapshot.state)  # type: ignore[arg-type]
