"""The status page of a running back end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.translator import Translator

_PREFIX = "kafkaesque_chat_"
_GAUGES = ("restore_ms", "transaction_ms_max")
_COUNTERS = (
    "passes",
    "batches",
    "snapshots",
    "restored",
    "predecessors_ended",
    "decide_ms_sum",
    "transaction_ms_sum",
)


class BackendStatus:
    """Metrics and status of one back end. See `service.status_page.StatusSource`."""

    def __init__(self, backend: Backend | Translator) -> None:
        self._backend = backend

    def metrics(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        counts = dataclasses.asdict(self._backend.counts)
        ops = counts.pop("ops")
        state = dataclasses.asdict(self._backend.state)
        for name, value in (counts | {name: state[name] for name in _COUNTERS}).items():
            yield f"# TYPE {_PREFIX}{name}_total counter"
            yield f"{_PREFIX}{name}_total {value}"
        yield f"# TYPE {_PREFIX}requests_total counter"
        for name, value in sorted(ops.items()):
            yield f'{_PREFIX}requests_total{{request="{name}"}} {value}'
        gauges = {name: state[name] for name in _GAUGES} | self._backend.tables.sizes
        gauges |= {"partitions": len(state["partitions"]), "ready": int(state["ready"])}
        for name, value in gauges.items():
            yield f"# TYPE {_PREFIX}{name} gauge"
            yield f"{_PREFIX}{name} {value}"

    def status(self) -> Mapping[str, Any]:
        return {
            "name": self._backend.name,
            "group": self._backend.group,
            **dataclasses.asdict(self._backend.counts),
            **dataclasses.asdict(self._backend.state),
            **self._backend.tables.sizes,
        }

    def not_ready(self) -> str | None:
        state = self._backend.state
        return None if state.ready else state.error or "starting"
