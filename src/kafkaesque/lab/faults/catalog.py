"""The fault runs by name. A run is imported only when it is needed."""

from __future__ import annotations

import importlib
from typing import Final, cast

from kafkaesque.lab.faults.fault_run import FaultRun

CLUSTER: Final = {
    "kill-leader": "broker_faults:KillLeader",
    "kill-controller": "broker_faults:KillController",
    "kill-coordinator": "broker_faults:KillCoordinator",
    "kill-all": "broker_faults:KillAll",
    "pause-leader": "broker_faults:PauseLeader",
    "partition-one-way": "network_faults:PartitionOneWay",
    "partition-two-way": "network_faults:PartitionTwoWay",
    "slow-disk": "disk_faults:SlowDisk",
    "disk-full": "disk_faults:DiskFull",
    "power-cut": "disk_faults:ClusterPowerCut",
    "flipped-bit": "disk_faults:FlippedBit",
    "wiped-replica": "broker_faults:WipedReplica",
    "clock-jump": "clock_faults:ClockJump",
    "rolling-restart": "broker_faults:RollingRestart",
    "reassignment": "broker_faults:ReassignPartitions",
    "coordination": "coordination:CoordinationRegisters",
    "coordination-recipes": "coordination:CoordinationRecipes",
    "transactions-copy": "transactions_copy:TransactionsCopy",
    "transactions-delayed": "transactions_delayed:TransactionsDelayed",
    "posts-broker-down": "posts_broker_down:PostsBrokerDown",
    "chat-broker-kill": "chat:ChatBrokerKill",
}
"""Runs against a cluster: module below `runs` and class."""

SINGLE: Final = {
    "kill-broker": "broker_faults:KillBroker",
    "pause-broker": "broker_faults:PauseBroker",
    "restart-clean": "broker_faults:RestartClean",
    "torn-tail": "disk_faults:TornTail",
    "single-power-cut": "disk_faults:SinglePowerCut",
    "single-disk-full": "disk_faults:SingleDiskFull",
    "single-flipped-bit": "disk_faults:SingleFlippedBit",
    "single-clock-jump": "clock_faults:SingleClockJump",
    "compaction-kill": "compaction_kill:CompactionKill",
    "pipeline-driver-kill": "pipeline_driver_kill:PipelineDriverKill",
    "chat-backend-kill": "chat:ChatBackendKill",
    "chat-backend-upgrade": "chat:ChatBackendUpgrade",
    "gateway-kill": "chat:GatewayKill",
    "gateway-restart": "chat:GatewayRestart",
    "tasks-worker-kill": "tasks:TasksWorkerKill",
    "timers-kill": "tasks:TimersKill",
}
"""Runs against one broker."""

_RUNS: Final = {**CLUSTER, **SINGLE}
NAMES: Final = tuple(_RUNS)


def load_run(name: str) -> FaultRun:
    """A new instance of a run: it keeps state while it is performed."""
    module_name, _, class_name = _RUNS[name].partition(":")
    module = importlib.import_module(f"kafkaesque.lab.faults.runs.{module_name}")
    return cast(FaultRun, getattr(module, class_name)())
