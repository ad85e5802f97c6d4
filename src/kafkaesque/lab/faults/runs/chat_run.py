"""Base of the chat runs: gateways, back ends and a thousand clients over the brokers of the run.

What must hold is judged from what the clients saw: none was disconnected (where the run promises it),
and every message that a gateway acknowledged reached its peer once and in order.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.runs.chat_load import LoadSettings
from kafkaesque.lab.faults.runs.chat_processes import LoadProcess, backend_process, gateway_process
from kafkaesque.lab.faults.runs.service_process import ServiceProcess
from kafkaesque.lab.faults.stage import FaultRun, RunOptions, Stage
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.testing.reserved_ports import ReservedPorts

BACKENDS: Final = 2
GATEWAYS: Final = 2
_FINISH_S: Final = 300.0
_ZEROS: Final = ("lost", "twice", "reordered", "results_missing", "results_twice", "refused")


class ChatRun(FaultRun):
    """`backends`, `gateways` and a load are there from `begin` on."""

    keeps_connections: bool = True
    """Whether the run promises that no client is disconnected."""
    dense_offsets = False
    settings: Mapping[str, object] = MappingProxyType({"group.min.session.timeout.ms": 1000})

    def __init__(self) -> None:
        self.directory = Path()
        self.backends: list[ServiceProcess] = []
        self.gateways: list[ServiceProcess] = []
        self.loads: list[LoadProcess] = []
        self.clients = int(os.environ.get("KAFKAESQUE_CHAT_CLIENTS", "1000"))
        self.messages_per_s = float(os.environ.get("KAFKAESQUE_CHAT_RATE", "100"))
        self._secret = secrets.token_hex(32)
        self._faults_ns: list[int] = []
        self._ports: ReservedPorts | None = None

    def workload(self, options: RunOptions) -> WorkloadSettings:
        # The records of the common load are only there to show that the log is well.
        return dataclasses.replace(
            super().workload(options),
            records_per_s=min(options.records_per_s, 20),
            senders=1,
            assigned_readers=1,
            subscribed_readers=1,
        )

    # -- the services -----------------------------------------------------------------------------

    def backend_settings(self, name: str) -> tuple[str, ...]:
        """A back end that is killed comes back under its name: it takes up its partitions at once."""
        return ("session.timeout.ms=6000", f"group.instance.id={name}")

    def gateway_settings(self) -> tuple[str, ...]:
        return ("auth.jwt.algorithms=HS256", f"auth.jwt.key.file={self.directory / 'jwt.key'}",
                "heartbeat.ms=60000")  # fmt: skip

    def begin(self, stage: Stage) -> None:
        self.directory = stage.target.data(0).parent
        bootstrap = stage.target.bootstrap_servers
        (self.directory / "jwt.key").write_text(self._secret)
        self._ports = ReservedPorts(GATEWAYS)
        self.backends = [
            backend_process(bootstrap, name, self.directory, *self.backend_settings(name))
            for name in (f"b{number}" for number in range(BACKENDS))
        ]
        self.gateways = [
            gateway_process(
                bootstrap, f"g{number}", self.directory, f"127.0.0.1:{port}",
                *self.gateway_settings(),
            )
            for number, port in enumerate(self._ports.numbers)
        ]  # fmt: skip
        for service in (*self.backends, *self.gateways):
            service.launch()
        for service in (*self.backends, *self.gateways):
            service.wait_ready()
        self.begin_load(stage)

    def begin_load(self, stage: Stage) -> None:
        self.start_load(stage, self.clients)

    def start_load(
        self, stage: Stage, clients: int, prefix: str = "c", versions: tuple[str, ...] = ("",)
    ) -> None:
        """Returns when all of these clients are connected."""
        ports = () if self._ports is None else self._ports.numbers
        settings = LoadSettings(
            tuple(f"127.0.0.1:{port}" for port in ports),
            self._secret,
            clients,
            self.messages_per_s * clients / self.clients,
            stage.random.randrange(1 << 30),
            prefix=prefix,
            versions=versions,
        )
        self.loads.append(LoadProcess(settings, self.directory))
        self.loads[-1].start()
        stage.say(f"{clients} clients are connected")

    def note_fault(self, stage: Stage, text: str) -> None:
        self._faults_ns.append(time.monotonic_ns())
        stage.fault(text)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        try:
            tally = _sum_of([load.finish(_FINISH_S) for load in self.loads])
        finally:
            for service in (*self.gateways, *self.backends, *self.loads):
                service.kill()
            if self._ports is not None:
                self._ports.close()
        self._note_figures(stage, tally)
        found = [f"{tally[name]} {name}" for name in _ZEROS if tally[name]]
        if tally["failures"]:
            found.append(f"clients were told: {tally['failures'][:3]}")
        if self.keeps_connections and tally["disconnects"]:
            found.append(f"{tally['disconnects']} disconnects")
        if not tally["received"]:
            found.append("not one message was delivered")
        found += [
            f"{service.name} logged a traceback"
            for service in (*self.gateways, *self.backends)
            if "Traceback (most recent call last)" in service.log.read_text(errors="replace")
        ]
        return found

    def _note_figures(self, stage: Stage, tally: dict[str, Any]) -> None:
        deliveries = [(int(sent), float(took)) for sent, took in tally.pop("deliveries")]
        latencies = [took for _, took in deliveries]
        stalls = self._stalls_ms(deliveries)
        stage.notes |= {
            "clients": self.clients,
            "messages_per_s_wanted": self.messages_per_s,
            **{f"messages_{name}": tally[name] for name in ("acknowledged", "received", "lost")},
            **{name: tally[name] for name in ("twice", "reordered", "refused", "disconnects")},
            **{name: tally[name] for name in ("results_missing", "results_twice", "resumed")},
            "resume_ms_p50": int(percentile(tally["resume_ms"], 0.5)),
            "resume_ms_p99": int(percentile(tally["resume_ms"], 0.99)),
            "latency_ms_p50": round(percentile(latencies, 0.5), 1),
            "latency_ms_p99": round(percentile(latencies, 0.99), 1),
            "stall_ms_p50": int(percentile(stalls, 0.5)),
            "stall_ms_p99": int(percentile(stalls, 0.99)),
            "stall_ms_max": int(max(stalls, default=0)),
        }

    def _stalls_ms(self, deliveries: list[tuple[int, float]]) -> list[float]:
        """Per fault, the longest that a message took which was under way then or sent before the
        next: what the people who talk notice of it."""
        stalls = []
        ends = [*self._faults_ns[1:], 1 << 63]
        for begun, ended in zip(self._faults_ns, ends, strict=True):
            hit = [took for sent, took in deliveries if sent + took * 1e6 >= begun and sent < ended]
            stalls.append(max(hit, default=0.0))
        return stalls


def _sum_of(tallies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Numbers are added, lists are put together."""
    total = dict(tallies[0])
    for tally in tallies[1:]:
        for name, value in tally.items():
            total[name] += value
    return total
