"""The status page of a worker or of the timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TasksStatus:
    """Put together from the parts of one process. See `service.status_page.StatusSource`."""

    metrics: Callable[[], str]
    status: Callable[[], Mapping[str, Any]]
    not_ready: Callable[[], str | None]
