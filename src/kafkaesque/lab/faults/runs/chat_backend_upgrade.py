"""Chat gets back ends of a new application version under load, and its routes change to them live.

The first round brings v2: its back ends start, the routes make v2 the default, and clients that name no
version are served by the new back ends from their next command on, over the connection that they have.
Clients built for v1 stay with those of v1, in conversations with the others; then clients built for v2
come, who speak in its own words. Every round replaces all back ends of both versions, one by one.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from kafkaesque.events.gateway import ROUTES_NODE, command_topic
from kafkaesque.lab.faults.runs.chat_processes import backend_process
from kafkaesque.lab.faults.runs.chat_run import BACKENDS, ChatRun
from kafkaesque.lab.faults.runs.service_process import ServiceProcess
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import Target, TargetUnwell
from kafkaesque.testing.reserved_ports import ReservedPorts

OLD: Final = "v1"
NEW: Final = "v2"
_ROUTES: Final = {version: command_topic(version).name for version in (OLD, NEW)}
_REROUTED_S: Final = 60.0
_POLL_S: Final = 0.05


class Run(ChatRun):
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
        """Of each of `backends`."""

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with ReservedPorts(1) as ports:
            self._zookeeper = f"127.0.0.1:{ports.numbers[0]}"
            wanted = {**settings, "coordination.listener": self._zookeeper}
            with super().open_target(directory, wanted) as target:
                yield target

    def gateway_settings(self) -> tuple[str, ...]:
        return (*super().gateway_settings(), f"zookeeper.connect={self._zookeeper}")

    def backend_settings(self, name: str) -> tuple[str, ...]:
        # Nobody comes back under an old name here: whoever leaves tells the group.
        return ("session.timeout.ms=6000",)

    @property
    def _newcomers(self) -> int:
        """Clients built for the new version: a third, and whole conversations."""
        return self.clients // 6 * 2

    def begin_load(self, stage: Stage) -> None:
        # Of each conversation one client names no version and one is built for the old.
        self.start_load(stage, self.clients - self._newcomers, versions=("", OLD))

    def inject(self, stage: Stage) -> None:
        while stage.another_round(1.0, 2.0):
            for number in range(len(self.backends)):
                self._replace(stage, number)
            if NEW not in self._versions:
                self._bring_new_version(stage)

    def _start(self, stage: Stage, version: str, number: int) -> ServiceProcess:
        name = f"{version}-{number}-build{stage.rounds_done + 1}"
        new = backend_process(
            stage.target.bootstrap_servers, name, self.directory, *self.backend_settings(name),
            version=version,
        )  # fmt: skip
        new.start()
        return new

    def _replace(self, stage: Stage, number: int) -> None:
        old = self.backends[number]
        self.note_fault(stage, f"{old.name} gives way to a new build")
        self.backends[number] = self._start(stage, self._versions[number], number)
        self._note_translated(stage, old, self._versions[number])
        if old.stop() != 0:
            stage.count("unclean_exits")
        stage.count("upgrades")

    def _bring_new_version(self, stage: Stage) -> None:
        for number in range(BACKENDS):
            self.backends.append(self._start(stage, NEW, number))
            self._versions.append(NEW)
        self.note_fault(stage, f"the routes make {NEW} the default")
        self._set_routes({**_ROUTES, "default": NEW})
        stage.count("route_changes")
        if self._newcomers:
            self.start_load(stage, self._newcomers, prefix="n", versions=(NEW,))

    def _set_routes(self, routes: Mapping[str, str]) -> None:
        """Returns when every gateway has them."""
        client = KazooClient(hosts=self._zookeeper)
        try:
            client.start(timeout=_REROUTED_S)
            client.set(ROUTES_NODE, json.dumps(routes).encode())
        finally:
            client.stop()
            client.close()
        deadline_s = time.monotonic() + _REROUTED_S
        for gateway in self.gateways:
            while _status(gateway)["routes"] != _ROUTES:
                if time.monotonic() > deadline_s:
                    raise TargetUnwell(f"{gateway.name} does not take the new routes")
                time.sleep(_POLL_S)

    def _note_translated(self, stage: Stage, backend: ServiceProcess, version: str) -> None:
        if version == NEW:
            stage.count("commands_of_new_version", int(_status(backend)["commands"]))

    def complaints(self, stage: Stage) -> list[str]:
        silent = []
        for backend, version in zip(self.backends, self._versions, strict=True):
            try:
                self._note_translated(stage, backend, version)
            except OSError as error:
                silent.append(f"{backend.name} does not answer: {error}")
        found = silent + super().complaints(stage)
        if stage.notes.get("unclean_exits"):
            found.append(f"{stage.notes['unclean_exits']} stop(s) ended with an exit code above 0")
        if not stage.notes.get("commands_of_new_version"):
            found.append("the back ends of the new version served nobody")
        return found


def _status(service: ServiceProcess) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{service.facts['http']}/status", timeout=30) as answer:
        status: dict[str, Any] = json.load(answer)
        return status
