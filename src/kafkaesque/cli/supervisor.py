"""Runs server processes as children: ordered start, one log each, restarts with backoff, ordered stop.

A child prints `ready NAME=ADDRESS ...` on standard output when it serves. Its standard input is a
pipe that ends when this process ends, however it ends, so no child outlives its supervisor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

logger = logging.getLogger(__name__)

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
RESTART_SECONDS_MIN = 0.5
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0
"""A child that served this long is restarted without delay again."""
OUTPUT_LINES_SHOWN = 15


class StartFailed(Exception):
    """A process did not become ready; the text says why and where its log is."""


class NotRunning(Exception):
    """There is no such process at this moment to do something to."""


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    """Ended by itself or by force; it is started again."""
    STOPPED = "stopped"


@dataclass(slots=True)
class Service:
    """One process to run: `command` with its arguments, its log, and what it said when ready."""

    name: str
    command: Sequence[str]
    log: Path
    stage: int = 0
    """Those of a later stage need those of the earlier ones: they are stopped before them."""
    ready_seconds_max: float = READY_SECONDS_MAX
    stop_seconds_max: float = STOP_SECONDS_MAX
    facts: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    state: State = State.STOPPED
    process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid


class Supervisor:
    """Keeps services running until `stop`."""

    def __init__(self) -> None:
        self.services: list[Service] = []
        self._watchers: dict[str, asyncio.Task[None]] = {}

    async def start(self, service: Service) -> None:
        """Start `service` and wait until it is ready; StartFailed if it is not."""
        # Known from now on, so that `stop` also ends one that is not ready yet.
        self.services.append(service)
        await self._launch(service)
        self._watch(service)

    async def try_start(self, service: Service) -> StartFailed | None:
        """As `start`, but one that fails is tried again with the same patience as one that died."""
        try:
            await self.start(service)
        except StartFailed as failure:
            self._watch(service)
            return failure
        return None

    def _watch(self, service: Service) -> None:
        self._watchers[service.name] = asyncio.create_task(self._keep(service))

    def find(self, name: str) -> Service:
        """Raises NotRunning."""
        for service in self.services:
            if service.name == name:
                return service
        known = ", ".join(service.name for service in self.services)
        raise NotRunning(f"there is no process {name!r}; there are {known}")

    def kill(self, name: str) -> None:
        """kill -9. It is started again as after any other death."""
        self._signal(self.find(name), signal.SIGKILL)

    def pause(self, name: str) -> None:
        """SIGSTOP: it is there and does nothing."""
        service = self.find(name)
        self._signal(service, signal.SIGSTOP)
        service.state = State.PAUSED

    def resume(self, name: str) -> None:
        service = self.find(name)
        self._signal(service, signal.SIGCONT)
        service.state = State.RUNNING

    def restart(self, name: str) -> None:
        """Ask it to stop in order; it is started again once it has."""
        service = self.find(name)
        if service.state is State.PAUSED:
            self.resume(name)
        self._signal(service, signal.SIGTERM)

    def _signal(self, service: Service, number: signal.Signals) -> None:
        process = service.process
        if process is None or process.returncode is not None:
            raise NotRunning(f"{service.name} is not running at this moment")
        process.send_signal(number)

    async def stop(self) -> None:
        """Stop everything, stage by stage, the last one first."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        for stage in sorted({service.stage for service in self.services}, reverse=True):
            services = [service for service in self.services if service.stage == stage]
            await asyncio.gather(*map(_end, services))
        self.services.clear()

    async def _launch(self, service: Service) -> None:
        service.log.parent.mkdir(parents=True, exist_ok=True)
        service.state = State.STARTING
        with service.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C reaches the supervisor alone, which then stops its children in order.
                start_new_session=True,
            )
        service.process = process
        try:
            async with asyncio.timeout(service.ready_seconds_max):
                service.facts = await _read_ready(process)
            service.state = State.RUNNING
        except TimeoutError:
            await _end(service)
            raise StartFailed(
                _explain(service, f"was not ready in {service.ready_seconds_max:.0f} s")
            ) from None
        except EOFError:
            code = await process.wait()
            raise StartFailed(_explain(service, f"ended with exit code {code}")) from None

    async def _keep(self, service: Service) -> None:
        delay = RESTART_SECONDS_MIN
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            code = await _drain(service)
            service.state = State.EXITED
            if loop.time() - started > STEADY_SECONDS:
                delay = RESTART_SECONDS_MIN
            logger.warning(
                "%s ended with exit code %s; starting it again in %.1f s", service.name, code, delay
            )
            await asyncio.sleep(delay)
            delay = min(delay * 2, RESTART_SECONDS_MAX)
            service.restarts += 1
            try:
                await self._launch(service)
            except StartFailed as error:
                logger.error("%s", error)
            else:
                logger.warning("%s is ready again", service.name)


async def _read_ready(process: asyncio.subprocess.Process) -> dict[str, str]:
    if process.stdout is None:
        raise EOFError
    while line := await process.stdout.readline():
        words = line.decode(errors="replace").split()
        if words[:1] == ["ready"]:
            return dict(word.split("=", 1) for word in words[1:] if "=" in word)
    raise EOFError


async def _drain(service: Service) -> int | None:
    """Wait for the end of the process, letting go of whatever else it prints."""
    process = service.process
    if process is None:
        return None
    if process.stdout is not None:
        while await process.stdout.read(65536):
            pass
    return await process.wait()


async def _end(service: Service) -> None:
    process = service.process
    if process is not None and process.returncode is None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        seconds = service.stop_seconds_max
        try:
            async with asyncio.timeout(seconds):
                await _drain(service)
        except TimeoutError:
            logger.warning("%s did not stop in %.0f s and is killed", service.name, seconds)
            os.kill(process.pid, signal.SIGKILL)
            await _drain(service)
    service.state = State.STOPPED


def _explain(service: Service, what: str) -> str:
    lines = service.log.read_text(errors="replace").splitlines()[-OUTPUT_LINES_SHOWN:]
    return "\n".join([f"{service.name} {what}; its log is {service.log}:", *lines])
