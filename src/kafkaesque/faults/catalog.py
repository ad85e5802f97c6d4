"""What there is to break, by name. A run is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import Final, cast

from kafkaesque.faults.stage import FaultRun

ALONE: Final = (
    "kill-broker",
    "pause-broker",
    "restart-clean",
    "torn-tail",
    "power-cut",
    "disk-full",
    "flipped-bit",
    "clock-jump",
)
"""Runs of one broker."""

CLUSTER: Final = ("kill-leader",)
"""Runs of several."""

NAMES: Final = (*CLUSTER, *ALONE)


def load_run(name: str) -> FaultRun:
    """A fresh run; it keeps state of its own while it is performed."""
    module = importlib.import_module(f"kafkaesque.faults.runs.{name.replace('-', '_')}")
    return cast(FaultRun, module.Run())
