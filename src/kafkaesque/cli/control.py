"""The control API of `kafkaesque up`: what runs, and ways to break it. On loopback, by token.

    GET  /processes                      {"processes": [{"name", "state", "pid", "restarts", ...}]}
    POST /processes/NAME/kill            kill -9; it is started again
    POST /processes/NAME/pause|resume    SIGSTOP, SIGCONT
    POST /processes/NAME/restart         stopped in order, then started again

`up` writes address and token to a file in its data directory that only its user can read, so
whoever may use the API may as well have used `kill`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from kafkaesque.cli.supervisor import NotRunning, Service, Supervisor

FILE_NAME = "control.json"
_NAME = "name"


def control_file(data: Path) -> Path:
    return data / FILE_NAME


class ControlServer:
    """Serves one supervisor until `close`."""

    def __init__(self, supervisor: Supervisor, data: Path) -> None:
        self._supervisor = supervisor
        self._path = control_file(data)
        self._token = secrets.token_urlsafe(24)
        application = web.Application(middlewares=[self._guard])
        actions = (supervisor.kill, supervisor.pause, supervisor.resume, supervisor.restart)
        application.add_routes(
            [
                web.get("/processes", self._processes),
                *(
                    web.post(f"/processes/{{{_NAME}}}/{act.__name__}", _acting(act))
                    for act in actions
                ),
            ]
        )
        self._runner = web.AppRunner(
            application, handle_signals=False, access_log=None, shutdown_timeout=0.5
        )

    async def open(self, host: str) -> None:
        """Listen on a free port and say where in the control file."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, 0).start()
        port = self._runner.addresses[0][1]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        told = {"url": f"http://{host}:{port}", "token": self._token, "pid": os.getpid()}
        fresh = self._path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(told))
        fresh.replace(self._path)

    async def close(self) -> None:
        self._path.unlink(missing_ok=True)
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return web.Response(status=401, text="the token of the control file is needed\n")
        response: web.StreamResponse = await handler(request)
        return response

    async def _processes(self, _request: web.Request) -> web.Response:
        services = self._supervisor.services
        return web.json_response({"processes": [_described(service) for service in services]})


def _acting(act: Callable[[str], None]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            act(request.match_info[_NAME])
        except NotRunning as error:
            return web.Response(status=409, text=f"{error}\n")
        return web.json_response({"done": act.__name__})

    return handle


def _described(service: Service) -> dict[str, object]:
    return {
        "name": service.name,
        "state": service.state.value,
        "pid": service.pid,
        "restarts": service.restarts,
        "facts": service.facts,
        "log": str(service.log),
        "memory_bytes": _memory_bytes(service.pid),
    }


def _memory_bytes(pid: int | None) -> int:
    """Resident, of the process and those that it started (Spark's JVM, its Python workers); 0 where
    the system does not tell."""
    if pid is None:
        return 0
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(_memory_bytes, children))
