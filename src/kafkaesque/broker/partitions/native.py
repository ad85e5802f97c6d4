"""Whether the append of a producer's batch is compiled. The only place of this package that knows.

As `storage.native`: what is compiled works on the slots of the same objects and hands to the Python
methods whatever is not ordinary.
"""

from __future__ import annotations

from typing import Any

from kafkaesque.broker.partitions.environment import Environment
from kafkaesque.broker.partitions.inspections import Inspections
from kafkaesque.broker.partitions.rules.admission import Rules
from kafkaesque.broker.partitions.rules.appended import Appended
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.entry_payload import BatchPayload
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.batch import BatchHeader, plain_header, stamp

try:
    from kafkaesque.broker.partitions import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

_SLOTS: dict[type | None, tuple[str, ...]] = {
    None: (
        *("closed", "replica", "config", "_env", "_rules", "_inspections", "_watchers"),
        *("producers", "high_watermark", "_unsynced_since_ms"),
    ),
    Replica: ("leads_alone", "entries", "standing", "flush_messages"),
    EntryLog: ("log", "last_index"),
    Log: ("log_start_offset", "log_end_offset"),
    Environment: ("clock", "flush_always"),
    Rules: (
        *("_size_bytes_max", "_before_max_ms", "_after_max_ms", "may_inspect", "uses_append_time"),
    ),
    Inspections: ("under_way",),
    TopicConfig: ("min_insync_replicas",),
}
"""As the enum in `_native.c`; the first ones are the partition's."""


def compiled_append(partition: type[Any]) -> Any:
    """What is to be the `append` of the class of partitions: its own where nothing is compiled."""
    if _module is None:
        return partition.append
    slots = tuple((cls or partition, name) for cls, names in _SLOTS.items() for name in names)
    return _module.append(
        *(partition.append, slots, BatchHeader, BatchPayload, Appended),
        *(plain_header, stamp, KafkaError),
    )
