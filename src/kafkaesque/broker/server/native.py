"""Whether the short way of requests is compiled. The only place of this package that knows.

As `storage.native`: what is compiled works on the slots of the same objects and hands to the Python
methods whatever is not ordinary.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from kafkaesque.broker.server.stats import LATENCY_BUCKETS_SECONDS, ApiStats, LatencyHistogram

try:
    from kafkaesque.broker.server import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

_SLOTS: dict[str | type, tuple[str, ...]] = {
    "dispatcher": ("_context", "_plain"),
    "route": ("_handle", "_read", "_write", "_version", "_stats"),
    ApiStats: ("received_bytes", "sent_bytes", "latency"),
    LatencyHistogram: ("counts", "sum_seconds"),
}
"""As the enum in `_native.c`."""


def compiled_serve_plainly(dispatcher: type[Any], route: type[Any]) -> Any:
    """What is to be the `serve_plainly` of the dispatcher's class: its own where nothing is
    compiled."""
    if _module is None:
        return dispatcher.serve_plainly
    known: dict[str | type, type] = {"dispatcher": dispatcher, "route": route}
    slots = tuple((known.get(cls, cls), name) for cls, names in _SLOTS.items() for name in names)
    return _module.serve_plainly(
        dispatcher.serve_plainly, slots, monotonic, LATENCY_BUCKETS_SECONDS[0]
    )
