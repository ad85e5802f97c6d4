"""The parts of one simulated cluster, for faults and convergence checks, which need all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkaesque.lab.sim.clients import SimulatedProducer
from kafkaesque.lab.sim.network import SimulatedNetwork
from kafkaesque.lab.sim.node import SimulatedNode
from kafkaesque.lab.sim.observer import Observer
from kafkaesque.lab.sim.operator import Operator
from kafkaesque.lab.sim.profile import Profile
from kafkaesque.lab.sim.schedule import EventSchedule, Trace
from kafkaesque.lab.sim.transactor import SimulatedTransactor
from kafkaesque.model.ids import GroupId


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    seed: int
    profile: Profile
    schedule: EventSchedule
    trace: Trace
    network: SimulatedNetwork
    observer: Observer
    groups: Sequence[GroupId]
    nodes: Sequence[SimulatedNode]
    operator: Operator
    producers: Sequence[SimulatedProducer]
    transactors: Sequence[SimulatedTransactor]
