"""A client for the control API of `kafkaesque up` (docs/CONSOLE.md describes the API).

`up` writes its address and a token to a control file. Without that file the Faults page is hidden.
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
    """Its ready line: kafka=..., http=..., coordination=..."""
    log: str | None = None


class _ProcessList(msgspec.Struct, frozen=True):
    processes: list[UpProcess]


class ControlFailed(Exception):
    """`up` rejected the action or is not running; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ControlEndpoint:
    """The address and token of `up`, from its control file."""

    url: str
    token: str


def read_control_file(path: Path) -> ControlEndpoint | None:
    """None if the file does not exist or is invalid."""
    try:
        document = json.loads(path.read_text())
        return ControlEndpoint(str(document["url"]).rstrip("/"), str(document["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class ProcessControl:
    """The processes of `up`, refreshed every second, and actions on them."""

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
        """Refresh until cancelled."""
        while self._path is not None:
            await self.refresh()
            await asyncio.sleep(INTERVAL_S)

    async def refresh(self) -> None:
        if self._path is None:
            return
        self._control = read_control_file(self._path)
        try:
            response = await self._call("GET", "/processes")
            self.processes = msgspec.json.decode(response.body, type=_ProcessList).processes
        except (ControlFailed, msgspec.DecodeError):
            self.processes = []

    async def act(self, name: str, action: str) -> None:
        if action not in ACTIONS:
            raise ControlFailed(f"unknown action '{action}'; use one of {', '.join(ACTIONS)}")
        if name not in {process.name for process in self.processes}:
            raise ControlFailed(f"process '{name}' does not exist")
        response = await self._call("POST", f"/processes/{quote(name, safe='')}/{action}")
        if response.status >= 300:
            raise ControlFailed(
                response.body.decode(errors="replace").strip() or "the action was rejected"
            )

    async def _call(self, method: str, path: str) -> HttpResponse:
        if self._control is None:
            raise ControlFailed("`kafkaesque up` is not running here")
        headers = {"Authorization": f"Bearer {self._control.token}"}
        try:
            return await http_request(method, self._control.url + path, headers)
        except HttpRequestFailed as error:
            raise ControlFailed(str(error)) from None
