"""Supervises server processes: ordered start, one log each, restarts with backoff, ordered stop.

The children print the `ready` line of `service.child_process` and end with their standard input, so
none outlives its supervisor.
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

from kafkaesque.model.backoff import Backoff
from kafkaesque.service.child_process import log_tail, read_ready

logger = logging.getLogger(__name__)

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
RESTART_SECONDS_MIN = 0.5
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0
"""After a child has run this long, its next restart waits the shortest delay again."""
LOG_LINES_SHOWN = 15


class StartFailed(Exception):
    """A process did not become ready; the text has the reason and the end of its log."""


class NotRunning(Exception):
    """There is no such process, or it is not running at the moment."""


class ProcessState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    """Ended, for whatever reason; the supervisor will start it again."""
    STOPPED = "stopped"


@dataclass(slots=True)
class Service:
    """One process to run: `command` with its arguments, its log, and the facts of its `ready` line."""

    name: str
    command: Sequence[str]
    log: Path
    stage: int = 0
    """Services need those of earlier stages and are stopped before them."""
    ready_seconds_max: float = READY_SECONDS_MAX
    stop_seconds_max: float = STOP_SECONDS_MAX
    facts: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    state: ProcessState = ProcessState.STOPPED
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
        """Start `service` and wait until it is ready. Raises StartFailed."""
        # Added first, so that `stop` also ends a service that is not ready yet.
        self.services.append(service)
        await self._launch(service)
        self._watch(service)

    async def try_start(self, service: Service) -> StartFailed | None:
        """As `start`, but returns the failure and restarts the service as if it had died."""
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
        raise NotRunning(f"there is no process {name!r}; the processes are {known}")

    def kill(self, name: str) -> None:
        """kill -9. The supervisor starts it again."""
        self._signal(self.find(name), signal.SIGKILL)

    def pause(self, name: str) -> None:
        """SIGSTOP: it exists, but does nothing."""
        service = self.find(name)
        self._signal(service, signal.SIGSTOP)
        service.state = ProcessState.PAUSED

    def resume(self, name: str) -> None:
        service = self.find(name)
        self._signal(service, signal.SIGCONT)
        service.state = ProcessState.RUNNING

    def restart(self, name: str) -> None:
        """SIGTERM; the supervisor starts it again once it has stopped."""
        service = self.find(name)
        if service.state is ProcessState.PAUSED:
            self.resume(name)
        self._signal(service, signal.SIGTERM)

    def _signal(self, service: Service, number: signal.Signals) -> None:
        process = service.process
        if process is None or process.returncode is not None:
            raise NotRunning(f"{service.name} is not running at the moment")
        process.send_signal(number)

    async def stop(self) -> None:
        """Stop everything, stage by stage, the last stage first."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        for stage in sorted({service.stage for service in self.services}, reverse=True):
            services = [service for service in self.services if service.stage == stage]
            await asyncio.gather(*map(_end, services))
        self.services.clear()

    async def _launch(self, service: Service) -> None:
        service.log.parent.mkdir(parents=True, exist_ok=True)
        service.state = ProcessState.STARTING
        with service.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C reaches only the supervisor, which then stops its children in order.
                start_new_session=True,
            )
        service.process = process
        try:
            async with asyncio.timeout(service.ready_seconds_max):
                service.facts = await _read_facts(process)
            service.state = ProcessState.RUNNING
        except TimeoutError:
            await _end(service)
            raise StartFailed(
                _explain(service, f"was not ready in {service.ready_seconds_max:.0f} s")
            ) from None
        except EOFError:
            code = await process.wait()
            raise StartFailed(_explain(service, f"ended with exit code {code}")) from None

    async def _keep(self, service: Service) -> None:
        backoff = Backoff(RESTART_SECONDS_MIN, RESTART_SECONDS_MAX)
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            code = await _drain(service)
            service.state = ProcessState.EXITED
            if loop.time() - started > STEADY_SECONDS:
                backoff.reset()
            delay = backoff.next_s()
            logger.warning(
                "%s ended with exit code %s; restarting in %.1f s", service.name, code, delay
            )
            await asyncio.sleep(delay)
            service.restarts += 1
            try:
                await self._launch(service)
            except StartFailed as error:
                logger.error("%s", error)
            else:
                logger.warning("%s is ready again", service.name)


async def _read_facts(process: asyncio.subprocess.Process) -> dict[str, str]:
    if process.stdout is None:
        raise EOFError
    return await read_ready(process.stdout)


async def _drain(service: Service) -> int | None:
    """Wait until the process ends; its further output is discarded."""
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
            logger.warning("%s did not stop in %.0f s; killing it", service.name, seconds)
            os.kill(process.pid, signal.SIGKILL)
            await _drain(service)
    service.state = ProcessState.STOPPED


def _explain(service: Service, what: str) -> str:
    tail = log_tail(service.log, lines=LOG_LINES_SHOWN)
    return f"{service.name} {what}; its log {service.log} ends with:\n{tail}"
