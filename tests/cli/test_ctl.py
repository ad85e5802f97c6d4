"""`kafkaesque ctl` and `kafkaesque status` with a supervisor that serves its control API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.up.test_supervisor import child
from tests.waiting import until

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import run
from kafkaesque.up.control_server import ControlServer
from kafkaesque.up.supervisor import ProcessState, Supervisor


class Stage:
    """One child with its control API; `type_in` runs our command line beside them."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.supervisor = Supervisor()
        self.service = child(tmp_path)
        self._server = ControlServer(self.supervisor, tmp_path)
        self._data = tmp_path
        self._capsys = capsys

    async def type_in(self, *words: str) -> tuple[int, str, str]:
        def command() -> int:
            try:
                return run([*words, "--data", str(self._data)])
            except SystemExit as end:
                return int(end.code or 0)

        code = await asyncio.to_thread(command)
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def play(self, story: Callable[[], Any]) -> None:
        async def whole() -> None:
            await self.supervisor.start(self.service)
            await self._server.open("127.0.0.1")
            try:
                async with asyncio.timeout(120):
                    await story()
            finally:
                await self.supervisor.stop()
                await self._server.close()

        asyncio.run(whole())


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(tmp_path, capsys)


def test_killed_process_is_restarted(stage: Stage) -> None:
    async def story() -> None:
        first = stage.service.pid
        code, out, _ = await stage.type_in("ctl", "kill", "one", "--json")
        assert code == ExitCode.OK
        assert json.loads(out) == {"process": "one", "action": "kill"}
        await until(
            lambda: stage.service.restarts == 1 and stage.service.state is ProcessState.RUNNING
        )
        assert stage.service.pid != first

    stage.play(story)


def test_process_is_paused_resumed_and_restarted(stage: Stage) -> None:
    async def story() -> None:
        assert (await stage.type_in("ctl", "pause", "one"))[1] == "one: pause\n"
        assert stage.service.state is ProcessState.PAUSED
        code, out, _ = await stage.type_in("status")
        assert code == ExitCode.FAILED
        assert "paused" in out
        await stage.type_in("ctl", "resume", "one")
        assert stage.service.state is ProcessState.RUNNING
        await stage.type_in("ctl", "restart", "one")
        await until(
            lambda: stage.service.restarts == 1 and stage.service.state is ProcessState.RUNNING
        )

    stage.play(story)


def test_status_has_the_total_memory(stage: Stage) -> None:
    async def story() -> None:
        code, out, _ = await stage.type_in("status", "--json")
        assert code == ExitCode.OK
        status = json.loads(out)
        assert status["memory_bytes"] == sum(item["memory_bytes"] for item in status["processes"])
        assert status["memory_bytes"] > 1_000_000
        _, out, _ = await stage.type_in("status")
        *_, last = out.splitlines()
        assert last.split()[0] == "total"

    stage.play(story)


def test_unknown_process_is_rejected_with_the_list_of_processes(stage: Stage) -> None:
    async def story() -> None:
        code, _, err = await stage.type_in("ctl", "kill", "two")
        assert code == ExitCode.FAILED
        assert "the processes are one" in err

    stage.play(story)


def test_error_without_a_running_up_says_how_to_start_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ctl", "kill", "one", "--data", str(tmp_path)]) == ExitCode.CANNOT_CONNECT
    assert f"kafkaesque up --data {tmp_path}" in capsys.readouterr().err
