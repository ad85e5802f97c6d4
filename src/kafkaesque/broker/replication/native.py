"""Whether the append of entries is compiled. The only place of this package that knows.

As `storage.native`: what is compiled works on the slots of the same objects and hands to the Python
methods whatever is not ordinary.
"""

from __future__ import annotations

from typing import Any

from kafkaesque.broker.replication.entry_index import BLOCK_ENTRIES, EntryIndex
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.entry_payload import BatchPayload, BatchRef
from kafkaesque.broker.storage.log import Log
from kafkaesque.records.batch import BatchHeader

try:
    from kafkaesque.broker.replication import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

_SLOTS: dict[type | None, tuple[str, ...]] = {
    None: ("log", "_journal", "_active", "_term", "gate_position", "last_index"),
    Log: ("log_end_offset",),
    RaftJournal: ("synced_position",),
    EntryIndex: ("base_offset", "end_offset", "end_position", "tail"),
}
"""As the enum in `_native.c`; the first ones are the entry log's."""


def compiled_append_batch(entries: type[Any]) -> Any:
    """What is to be the `append_batch` of the class of entry logs: its own where nothing is
    compiled."""
    if _module is None:
        return entries.append_batch
    slots = tuple((cls or entries, name) for cls, names in _SLOTS.items() for name in names)
    return _module.append_batch(
        entries.append_batch, slots, BatchHeader, BatchPayload, BatchRef, BLOCK_ENTRIES
    )
