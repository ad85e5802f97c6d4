"""The control API of `kafkaesque up`: lists its processes, and kills, pauses or restarts them.

    GET  /processes                      {"processes": [{"name", "state", "pid", "restarts", ...}]}
    POST /processes/NAME/kill            kill -9; the supervisor starts it again
    POST /processes/NAME/pause|resume    SIGSTOP, SIGCONT
    POST /processes/NAME/restart         SIGTERM; the supervisor starts it again

Listens on loopback and requires a token. `up` writes address and token to a file in its data directory
that only its user can read, so the API permits no user more than `kill` would.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from kafkaesque.up.control_client import control_file
from kafkaesque.up.supervisor import NotRunning, Service, Supervisor

_NAME = "name"


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
        """Listen on a free port and write the control file."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, 0).start()
        port = self._runner.addresses[0][1]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"url": f"http://{host}:{port}", "token": self._token, "pid": os.getpid()}
        fresh = self._path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(content))
        fresh.replace(self._path)

    async def close(self) -> None:
        self._path.unlink(missing_ok=True)
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return web.Response(
                status=401, text="the Authorization header lacks the token of control.json\n"
            )
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
    """Resident memory of the process and its descendants (Spark's JVM, its Python workers); 0 if
    /proc does not have it."""
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
