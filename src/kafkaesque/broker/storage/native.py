"""Whether appends are compiled. The only place of this package that knows.

`_native` is there if a C compiler was when the package was built (hatch_build.py), and refuses to be
imported where KAFKAESQUE_PURE is set. It works on the slots of the objects that the Python methods
work on, and hands to those whatever is not ordinary, so nobody who calls it can tell which it is.
"""

from __future__ import annotations

from typing import Any

from kafkaesque.broker.storage.chain import SegmentChain
from kafkaesque.broker.storage.config import POSITION_MAX, LogConfig
from kafkaesque.broker.storage.durability import Durability
from kafkaesque.broker.storage.epochs import LeaderEpochs
from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES, SparseIndex
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.storage.segment import OFFSET_DELTA_MAX, RECENT_MAX, Segment
from kafkaesque.records.batch import BatchHeader

try:
    from kafkaesque.broker.storage import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

_SLOTS: dict[type | None, tuple[str, ...]] = {
    None: ("_lock", "_durability", "_chain", "_epochs", "log_end_offset", "tail"),
    Durability: ("failure",),
    LeaderEpochs: ("latest",),
    SegmentChain: ("_is_refusing", "segments", "_files", "config"),
    OpenFiles: ("calls",),
    Segment: (
        *("base_offset", "size_bytes", "first_timestamp", "max_timestamp"),
        *("max_timestamp_position", "index", "is_synced", "_indexed_position", "_needs_repair"),
        *("_pinned_fd", "_recent", "_runway_end", "_unsynced_position"),
    ),
    SparseIndex: ("count", "_tail"),
    LogConfig: (
        *("segment_bytes", "segment_ms", "index_interval_bytes", "segment_index_bytes"),
        *("runway_bytes", "runway_from_bytes"),
    ),
}
"""As the enum in `_native.c`; the first ones are the log's."""
_LIMITS = (OFFSET_DELTA_MAX, POSITION_MAX, ENTRY_SIZE_BYTES, RECENT_MAX)


def compiled_append(log: type[Any]) -> Any:
    """What is to be the `append` of the class of logs: its own where nothing is compiled."""
    if _module is None:
        return log.append
    slots = tuple((cls or log, name) for cls, names in _SLOTS.items() for name in names)
    return _module.append(log.append, slots, BatchHeader, _LIMITS)
