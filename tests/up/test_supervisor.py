"""Children of a supervisor: start, end, restart, and the events it reports."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import until

from kafkaesque.up.control_client import control_file
from kafkaesque.up.control_server import ControlServer
from kafkaesque.up.supervisor import NotRunning, ProcessState, Service, StartFailed, Supervisor

STEADY = (
    "import os, sys; print('ready http=h:1', f'pid={os.getpid()}', flush=True); sys.stdin.read()"
)
FAILING = "import sys; print('the port is taken', file=sys.stderr); sys.exit(3)"
FAILING_ONCE = """
import os, pathlib, sys
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    sys.exit(3)
print("ready", flush=True)
sys.stdin.read()
"""
TELLING = """
import signal, sys
def end(*_):
    with open(sys.argv[1], "a") as file:
        print(sys.argv[2], file=file)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
sys.stdin.read()
"""


def child(tmp_path: Path, name: str = "one", program: str = STEADY, *arguments: str) -> Service:
    command = [sys.executable, "-c", program, *arguments]
    return Service(name, command, tmp_path / f"{name}.log")


def run(story: Callable[[Supervisor], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        supervisor = Supervisor()
        try:
            async with asyncio.timeout(60):
                await story(supervisor)
        finally:
            await supervisor.stop()

    asyncio.run(whole())


def test_killed_process_is_started_again(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        service = child(tmp_path)
        await supervisor.start(service)
        first = service.pid
        supervisor.kill("one")
        await until(lambda: service.restarts == 1 and service.state is ProcessState.RUNNING)
        assert service.pid != first

    run(story)


def test_paused_process_stands_still_until_it_is_resumed(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        service = child(tmp_path)
        await supervisor.start(service)
        supervisor.pause("one")
        await until(lambda: _kernel_state(service.pid) == "T")
        assert service.state is ProcessState.PAUSED
        supervisor.resume("one")
        await until(lambda: _kernel_state(service.pid) != "T")
        assert service.state is ProcessState.RUNNING

    run(story)


def test_paused_process_can_be_stopped(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        service = child(tmp_path)
        await supervisor.start(service)
        supervisor.pause("one")
        await supervisor.stop()
        assert service.state is ProcessState.STOPPED

    run(story)


def test_what_does_not_start_says_why_and_is_tried_again(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        with pytest.raises(StartFailed, match="the port is taken"):
            await supervisor.start(child(tmp_path, "failing", FAILING))
        service = child(tmp_path, "late", FAILING_ONCE, str(tmp_path / "mark"))
        assert isinstance(await supervisor.try_start(service), StartFailed)
        await until(lambda: service.state is ProcessState.RUNNING)

    run(story)


def test_later_stages_are_stopped_before_earlier_ones(tmp_path: Path) -> None:
    ended = tmp_path / "ended"

    async def story(supervisor: Supervisor) -> None:
        for stage, name in enumerate(("broker", "back-end", "gateway")):
            service = child(tmp_path, name, TELLING, str(ended), name)
            service.stage = stage
            await supervisor.start(service)
        await supervisor.stop()
        assert ended.read_text().split() == ["gateway", "back-end", "broker"]

    run(story)


def test_unknown_and_dead_processes_are_named(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        await supervisor.start(child(tmp_path))
        with pytest.raises(NotRunning, match="'two'; the processes are one"):
            supervisor.kill("two")

    run(story)


def test_control_api_tells_and_acts_for_whoever_has_the_token(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor) -> None:
        service = child(tmp_path)
        await supervisor.start(service)
        server = ControlServer(supervisor, tmp_path)
        await server.open("127.0.0.1")
        path = control_file(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        control = json.loads(path.read_text())
        headers = {"Authorization": f"Bearer {control['token']}"}
        async with aiohttp.ClientSession(control["url"]) as session:
            for given in ({}, {"Authorization": "Bearer guess"}):
                async with session.get("/processes", headers=given) as answer:
                    assert answer.status == 401
            async with session.get("/processes", headers=headers) as answer:
                [process] = (await answer.json())["processes"]
            assert process["name"] == "one"
            assert process["state"] == "running"
            assert process["pid"] == service.pid
            assert process["facts"]["http"] == "h:1"
            assert process["memory_bytes"] > 1_000_000
            async with session.post("/processes/two/kill", headers=headers) as answer:
                assert answer.status == 409
                assert "the processes are one" in await answer.text()
            async with session.post("/processes/one/kill", headers=headers) as answer:
                assert answer.status == 200
            await until(lambda: service.restarts == 1)
        await server.close()
        assert not path.exists()

    run(story)


def _kernel_state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
