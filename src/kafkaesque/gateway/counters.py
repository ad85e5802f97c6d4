"""The counters of a gateway, and their Prometheus text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

PREFIX = "kafkaesque_gateway_"
PUSH_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(slots=True)
class Counters:
    """Counters only grow."""

    accepted: int = 0
    welcomed: int = 0
    handed_over: int = 0
    """Connections taken over from the previous process at a planned restart."""
    drained: int = 0
    """Connections sent to another gateway because this one stops."""
    commands: int = 0
    command_failures: int = 0
    asks: int = 0
    ask_timeouts: int = 0
    events: int = 0
    events_malformed: int = 0
    resumes: int = 0
    resumes_refused: int = 0
    events_replayed: int = 0
    rate_limited: int = 0
    closes: Counter[str] = field(default_factory=Counter)
    """By close code, or `peer` if the client closed."""
    push_ms: list[int] = field(default_factory=lambda: [0] * (len(PUSH_BOUNDS_MS) + 1))
    """Deliveries by milliseconds from the record's timestamp to the socket."""
    push_ms_sum: int = 0

    def pushed(self, count: int, delay_ms: int) -> None:
        """An event was delivered to `count` clients."""
        self.events += count
        self.push_ms_sum += max(0, delay_ms) * count
        for index, bound in enumerate(PUSH_BOUNDS_MS):
            if delay_ms <= bound:
                self.push_ms[index] += count
                return
        self.push_ms[-1] += count


_SINGLE = (
    "accepted", "welcomed", "handed_over", "drained", "commands", "command_failures", "asks", "ask_timeouts",
    "events", "events_malformed", "resumes", "resumes_refused", "events_replayed", "rate_limited",
)  # fmt: skip


def render(counters: Counters, gauges: Mapping[str, float]) -> str:
    """The Prometheus text format."""
    return "\n".join(_lines(counters, gauges)) + "\n"


def _lines(counters: Counters, gauges: Mapping[str, float]) -> Iterator[str]:
    for name in _SINGLE:
        yield f"# TYPE {PREFIX}{name}_total counter"
        yield f"{PREFIX}{name}_total {getattr(counters, name)}"
    yield f"# TYPE {PREFIX}closes_total counter"
    for code, count in sorted(counters.closes.items()):
        yield f'{PREFIX}closes_total{{code="{code}"}} {count}'
    for name, value in gauges.items():
        yield f"# TYPE {PREFIX}{name} gauge"
        yield f"{PREFIX}{name} {value:g}"
    yield from _histogram(counters)


def _histogram(counters: Counters) -> Iterator[str]:
    name = f"{PREFIX}push_ms"
    yield f"# TYPE {name} histogram"
    total = 0
    bounds: Iterable[object] = (*PUSH_BOUNDS_MS, "+Inf")
    for bound, count in zip(bounds, counters.push_ms, strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {counters.push_ms_sum}"
    yield f"{name}_count {total}"
