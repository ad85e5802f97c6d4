"""Runs against gateways and chat back ends, with a thousand connected clients.

The clients' observations decide: no client was disconnected (where the run promises it), and every message
that a gateway acknowledged reached its recipient once and in order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from kazoo.client import KazooClient

from kafkaesque.events.gateway import ROUTES_NODE, command_topic
from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.runs.chat_load import LoadSettings
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.cluster import (
    BROKERS,
    BrokerCluster,
    BrokerSettings,
    Target,
    TargetFailed,
)
from kafkaesque.lab.harness.service_process import ServiceProcess, kafkaesque
from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.testing.waiting import poll_until

BACKENDS: Final = 2
GATEWAYS: Final = 2
READY_S: Final = 90.0
OLD: Final = "v1"
NEW: Final = "v2"
_ROUTES: Final = {version: command_topic(version).name for version in (OLD, NEW)}
_REROUTED_S: Final = 60.0
_HAND_OVER_S: Final = 60.0
_FINISH_S: Final = 300.0
_ZEROS: Final = ("lost", "twice", "reordered", "results_missing", "results_twice", "refused")


# -- processes ------------------------------------------------------------------------------------


def backend_process(
    bootstrap: str, name: str, directory: Path, *settings: str, version: str = "v1"
) -> ServiceProcess:
    words = ("chat", "backend", "--app-version", version)
    return _service(bootstrap, name, directory, words, settings)


def gateway_process(
    bootstrap: str, name: str, directory: Path, listen: str, *settings: str
) -> ServiceProcess:
    return _service(bootstrap, name, directory, ("gateway", "--listen", listen), settings)


def _service(
    bootstrap: str, name: str, directory: Path, words: Sequence[str], settings: Sequence[str]
) -> ServiceProcess:
    command = kafkaesque(
        *words, "-b", bootstrap, "--name", name, "--data", str(directory / name),
        "--log-level", "info", "--end-with-stdin",
    )  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    return ServiceProcess(name, command, directory, ready_s=READY_S)


class ChatLoadProcess(ServiceProcess):
    """The clients, see chat_load.py."""

    def __init__(self, settings: LoadSettings, directory: Path) -> None:
        command = [sys.executable, "-m", "kafkaesque.lab.faults.runs.chat_load"]
        super().__init__(
            f"load-{settings.prefix}", [*command, json.dumps(dataclasses.asdict(settings))], directory,
            ready_s=READY_S,
        )  # fmt: skip

    def finish(self, seconds: float) -> dict[str, Any]:
        """Stop sending, wait for messages in flight, and return the counts."""
        self.end_input()
        line = self.read_line(seconds)
        self.kill()
        if not line:
            raise TargetFailed(f"the load did not finish: {self.log_tail()}")
        tally: dict[str, Any] = json.loads(line)
        return tally


# -- the runs -------------------------------------------------------------------------------------


class ChatRun(FaultRun):
    """Base of the chat runs. `backends`, `gateways` and the load exist from `begin` on."""

    keeps_connections: bool = True
    """Whether the run promises that no client is disconnected."""
    dense_offsets = False
    settings: ClassVar[BrokerSettings] = MappingProxyType({"group.min.session.timeout.ms": 1000})

    def __init__(self) -> None:
        self.directory = Path()
        self.backends: list[ServiceProcess] = []
        self.gateways: list[ServiceProcess] = []
        self.loads: list[ChatLoadProcess] = []
        self.clients = int(os.environ.get("KAFKAESQUE_CHAT_CLIENTS", "1000"))
        self.messages_per_s = float(os.environ.get("KAFKAESQUE_CHAT_RATE", "100"))
        self._secret = secrets.token_hex(32)
        self._faults_ns: list[int] = []
        self._ports: ReservedPorts | None = None

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        # The usual load only shows that the log is intact.
        return dataclasses.replace(
            super().workload(options),
            records_per_s=min(options.records_per_s, 20),
            senders=1,
            assigned_readers=1,
            subscribed_readers=1,
        )

    # -- the services -----------------------------------------------------------------------------

    def backend_settings(self, name: str) -> tuple[str, ...]:
        """With a static member id, a killed back end gets its partitions back at once."""
        return ("session.timeout.ms=6000", f"group.instance.id={name}")

    def gateway_settings(self) -> tuple[str, ...]:
        return ("auth.jwt.algorithms=HS256", f"auth.jwt.key.file={self.directory / 'jwt.key'}",
                "heartbeat.ms=60000")  # fmt: skip

    def begin(self, context: FaultRunContext) -> None:
        self.directory = context.target.data(0).parent
        bootstrap = context.target.bootstrap_servers
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
        self.begin_load(context)

    def begin_load(self, context: FaultRunContext) -> None:
        self.start_load(context, self.clients)

    def start_load(
        self,
        context: FaultRunContext,
        clients: int,
        prefix: str = "c",
        versions: tuple[str, ...] = ("",),
    ) -> None:
        """Start a load; returns when all of its clients are connected."""
        ports = () if self._ports is None else self._ports.numbers
        settings = LoadSettings(
            tuple(f"127.0.0.1:{port}" for port in ports),
            self._secret,
            clients,
            self.messages_per_s * clients / self.clients,
            context.random.randrange(1 << 30),
            prefix=prefix,
            versions=versions,
        )
        self.loads.append(ChatLoadProcess(settings, self.directory))
        self.loads[-1].start()
        context.say(f"{clients} clients are connected")

    def kill_and_restart(self, context: FaultRunContext, service: ServiceProcess) -> None:
        self.note_fault(context, f"kill -9 {service.name}")
        service.kill()
        context.count("kills")
        service.start()

    def note_fault(self, context: FaultRunContext, text: str) -> None:
        self._faults_ns.append(time.monotonic_ns())
        context.fault(text)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        try:
            tally = _sum_of([load.finish(_FINISH_S) for load in self.loads])
        finally:
            for service in (*self.gateways, *self.backends, *self.loads):
                service.kill()
            if self._ports is not None:
                self._ports.close()
        self._note_figures(context, tally)
        found = [f"{tally[name]} {name}" for name in _ZEROS if tally[name]]
        if tally["failures"]:
            found.append(f"clients got errors: {tally['failures'][:3]}")
        if self.keeps_connections and tally["disconnects"]:
            found.append(f"{tally['disconnects']} disconnects")
        if not tally["received"]:
            found.append("no message was delivered")
        found += [
            f"{service.name} logged a traceback"
            for service in (*self.gateways, *self.backends)
            if "Traceback (most recent call last)" in service.log.read_text(errors="replace")
        ]
        return found

    def _note_figures(self, context: FaultRunContext, tally: dict[str, Any]) -> None:
        deliveries = [(int(sent), float(took)) for sent, took in tally.pop("deliveries")]
        latencies = [took for _, took in deliveries]
        stalls = self._stalls_ms(deliveries)
        context.notes |= {
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
        """Per fault, the longest delivery of a message that was in flight or sent before the next
        fault: what users notice of the fault."""
        stalls = []
        ends = [*self._faults_ns[1:], 1 << 63]
        for begun, ended in zip(self._faults_ns, ends, strict=True):
            hit = [took for sent, took in deliveries if sent + took * 1e6 >= begun and sent < ended]
            stalls.append(max(hit, default=0.0))
        return stalls


def _sum_of(tallies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds numbers and concatenates lists."""
    total = dict(tallies[0])
    for tally in tallies[1:]:
        for name, value in tally.items():
            total[name] += value
    return total


class ChatBackendKill(ChatRun):
    purpose = "kill -9 and restart chat back ends under connected clients, again and again"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 20

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(1.0, 3.0):
            self.kill_and_restart(context, context.random.choice(self.backends))


class GatewayKill(ChatRun):
    purpose = "kill -9 and restart a gateway under its clients, again and again"
    promise = "all clients resume on another gateway; no message is lost, doubled or out of order"
    keeps_connections = False
    rounds = 5

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(2.0, 5.0):
            self.kill_and_restart(context, context.random.choice(self.gateways))


class ChatBrokerKill(ChatRun):
    purpose = "kill -9 and restart brokers of a cluster under connected clients"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    brokers = BROKERS
    rounds = 5
    settings: ClassVar[BrokerSettings] = MappingProxyType(
        {**ChatRun.settings, "default.replication.factor": BROKERS}
    )

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self._cluster = BrokerCluster(directory, settings, count=self.brokers)
        try:
            yield self._cluster
        finally:
            self._cluster.close()

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(2.0, 4.0):
            node = context.random.choice(self._cluster.nodes)
            self.note_fault(context, f"kill -9 broker {node}")
            self._cluster.kill(node)
            context.count("kills")
            self._cluster.bring_up(node)
            self._cluster.wait_recovered()


class GatewayRestart(ChatRun):
    purpose = "restart gateways under their clients by handing over listener and connections"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 5

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(1.0, 3.0):
            number = context.rounds_done % len(self.gateways)
            old = self.gateways[number]
            self.note_fault(context, f"hand over {old.name}")
            self.gateways[number] = self._hand_over(context, old)
            context.count("hand_overs")

    def _hand_over(self, context: FaultRunContext, old: ServiceProcess) -> ServiceProcess:
        """Start a gateway that takes over from `old`, and wait until `old` has ended."""
        successor = gateway_process(
            context.target.bootstrap_servers, old.name, self.directory, old.facts["tcp"],
            *self.gateway_settings(),
        )  # fmt: skip
        successor.launch("--take-over")
        successor.wait_ready()
        poll_until(
            lambda: not old.is_running,
            f"the end of {old.name} after its hand-over",
            _HAND_OVER_S,
            poll_s=0.05,
            error=TargetFailed,
        )
        # It has ended by itself; this closes its pipes.
        with contextlib.suppress(ProcessLookupError):
            old.kill()
        return successor


class ChatBackendUpgrade(ChatRun):
    """The first round brings v2: its back ends start, the routes make v2 the default, and clients that
    name no version are served by v2 from their next command on, over the connection that they have.
    Clients built for v1 stay with v1, in conversations with the others. Then clients built for v2
    connect and use its commands. Every round replaces all back ends of both versions, one by one.
    """

    purpose = (
        "bring chat back ends of a new application version, switch the routes to them live, and "
        "replace back ends of both versions under connected clients"
    )
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 3

    def __init__(self) -> None:
        super().__init__()
        self._zookeeper = ""
        self._versions = [OLD] * BACKENDS
        """The version of each of `backends`."""

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        with ReservedPorts(1) as ports:
            self._zookeeper = f"127.0.0.1:{ports.numbers[0]}"
            wanted = {**settings, "coordination.listener": self._zookeeper}
            with super().open_target(directory, wanted) as target:
                yield target

    def gateway_settings(self) -> tuple[str, ...]:
        return (*super().gateway_settings(), f"zookeeper.connect={self._zookeeper}")

    def backend_settings(self, name: str) -> tuple[str, ...]:
        # No static member ids: every build has its own name, and leaves the group when it stops.
        return ("session.timeout.ms=6000",)

    @property
    def _newcomers(self) -> int:
        """How many clients are built for the new version: a third, in whole conversations."""
        return self.clients // 6 * 2

    def begin_load(self, context: FaultRunContext) -> None:
        # In each conversation, one client names no version and one is built for the old one.
        self.start_load(context, self.clients - self._newcomers, versions=("", OLD))

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(1.0, 2.0):
            for number in range(len(self.backends)):
                self._replace(context, number)
            if NEW not in self._versions:
                self._bring_new_version(context)

    def _start(self, context: FaultRunContext, version: str, number: int) -> ServiceProcess:
        name = f"{version}-{number}-build{context.rounds_done + 1}"
        new = backend_process(
            context.target.bootstrap_servers, name, self.directory, *self.backend_settings(name),
            version=version,
        )  # fmt: skip
        new.start()
        return new

    def _replace(self, context: FaultRunContext, number: int) -> None:
        old = self.backends[number]
        self.note_fault(context, f"replace {old.name} by a new build")
        self.backends[number] = self._start(context, self._versions[number], number)
        self._note_commands(context, old, self._versions[number])
        if old.stop() != 0:
            context.count("unclean_exits")
        context.count("upgrades")

    def _bring_new_version(self, context: FaultRunContext) -> None:
        for number in range(BACKENDS):
            self.backends.append(self._start(context, NEW, number))
            self._versions.append(NEW)
        self.note_fault(context, f"the routes make {NEW} the default")
        self._set_routes({**_ROUTES, "default": NEW})
        context.count("route_changes")
        if self._newcomers:
            self.start_load(context, self._newcomers, prefix="n", versions=(NEW,))

    def _set_routes(self, routes: Mapping[str, str]) -> None:
        """Returns when every gateway uses the new routes."""
        client = KazooClient(hosts=self._zookeeper)
        try:
            client.start(timeout=_REROUTED_S)
            client.set(ROUTES_NODE, json.dumps(routes).encode())
        finally:
            client.stop()
            client.close()
        poll_until(
            lambda: all(_status(gateway)["routes"] == _ROUTES for gateway in self.gateways),
            "the new routes at every gateway",
            _REROUTED_S,
            poll_s=0.05,
            error=TargetFailed,
        )

    def _note_commands(
        self, context: FaultRunContext, backend: ServiceProcess, version: str
    ) -> None:
        if version == NEW:
            context.count("commands_of_new_version", int(_status(backend)["commands"]))

    def complaints(self, context: FaultRunContext) -> list[str]:
        silent = []
        for backend, version in zip(self.backends, self._versions, strict=True):
            try:
                self._note_commands(context, backend, version)
            except OSError as error:
                silent.append(f"{backend.name} does not answer: {error}")
        found = silent + super().complaints(context)
        if context.notes.get("unclean_exits"):
            found.append(
                f"{context.notes['unclean_exits']} stop(s) ended with an exit code above 0"
            )
        if not context.notes.get("commands_of_new_version"):
            found.append("the back ends of the new version served no command")
        return found


def _status(service: ServiceProcess) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{service.facts['http']}/status", timeout=30) as answer:
        status: dict[str, Any] = json.load(answer)
        return status
