"""The processes that `kafkaesque up` runs, by its control API (docs/CONSOLE.md has the contract).

The file that `up` writes says where it listens and with which token; no file, no panel.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from kafkaesque.console.services.http_client import HttpRequestFailed, HttpResponse, http_request

ACTIONS: Final = ("kill", "pause", "resume", "restart")
INTERVAL_S: Final = 1.0


class UpProcess(msgspec.Struct, frozen=True):
    """One process of `up`. Unknown fields are ignored: either side may be newer."""

    name: str
    state: str
    """starting, running, paused, exited or stopped."""
    pid: int | None = None
    restarts: int = 0
    facts: dict[str, str] = {}
    """What it said when it was ready: kafka=..., http=..., coordination=..."""
    log: str | None = None


class _ProcessList(msgspec.Struct, frozen=True):
    processes: list[UpProcess]


class ControlFailed(Exception):
    """`up` did not do it; the message says why."""


@dataclass(frozen=True, slots=True)
class ControlEndpoint:
    """Where `up` listens, from its control file."""

    url: str
    token: str


def read_control_file(path: Path) -> ControlEndpoint | None:
    """None while there is no file, or none that can be used."""
    try:
        document = json.loads(path.read_text())
        return ControlEndpoint(str(document["url"]).rstrip("/"), str(document["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class ProcessControl:
    """What `up` runs, looked at every second; `acts` has one call an action."""

    def __init__(self, control_file: Path | None) -> None:
        self.processes: list[UpProcess] = []
        self._path = control_file
        self._control: ControlEndpoint | None = None

    @property
    def is_present(self) -> bool:
        return self._control is not None and bool(self.processes)

    def metrics_urls(self) -> list[str]:
        return [
            f"http://{process.facts['http']}/metrics"
            for process in self.processes
            if "http" in process.facts
        ]

    async def run(self) -> None:
        """Until cancelled."""
        while self._path is not None:
            await self.look()
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        if self._path is None:
            return
        self._control = read_control_file(self._path)
        try:
            answer = await self._call("GET", "/processes")
            self.processes = msgspec.json.decode(answer.body, type=_ProcessList).processes
        except (ControlFailed, msgspec.DecodeError):
            self.processes = []

    async def act(self, name: str, action: str) -> None:
        if action not in ACTIONS:
            raise ControlFailed(f"there is no action '{action}'; there are {', '.join(ACTIONS)}")
        if name not in {process.name for process in self.processes}:
            raise ControlFailed(f"there is no process '{name}'")
        answer = await self._call("POST", f"/processes/{quote(name, safe='')}/{action}")
        if answer.status >= 300:
            raise ControlFailed(answer.body.decode(errors="replace").strip() or "refused")

    async def _call(self, method: str, path: str) -> HttpResponse:
        if self._control is None:
            raise ControlFailed("no `kafkaesque up` is running here")
        headers = {"Authorization": f"Bearer {self._control.token}"}
        try:
            return await http_request(method, self._control.url + path, headers)
        except HttpRequestFailed as error:
            raise ControlFailed(str(error)) from None
