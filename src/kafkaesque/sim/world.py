"""The parts of one simulation, for whoever has to do with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkaesque.model.ids import GroupId
from kafkaesque.sim.network import Network
from kafkaesque.sim.node import SimulatedNode
from kafkaesque.sim.observer import Observer
from kafkaesque.sim.operator import Operator
from kafkaesque.sim.producer import SimulatedProducer
from kafkaesque.sim.profile import Profile
from kafkaesque.sim.schedule import Schedule
from kafkaesque.sim.trace import Trace
from kafkaesque.sim.transactor import SimulatedTransactor


@dataclass(frozen=True, slots=True)
class World:
    seed: int
    profile: Profile
    schedule: Schedule
    trace: Trace
    network: Network
    observer: Observer
    groups: Sequence[GroupId]
    nodes: Sequence[SimulatedNode]
    operator: Operator
    producers: Sequence[SimulatedProducer]
    transactors: Sequence[SimulatedTransactor]
