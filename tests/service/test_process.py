"""A server process: the ready line, the file with its addresses, and its stop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaesque.service.process import (
    facts_file,
    read_facts,
    serve_until_stopped,
)

FACTS = {"http": "127.0.0.1:1", "pid": "17"}


class Service:
    """Ends when stopped, or with its failure."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.failure: Exception | None = None

    async def run(self) -> None:
        await self.ended.wait()
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self.ended.set()


def test_file_of_facts_is_there_while_the_process_runs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "service.json"
    with facts_file(path, FACTS):
        assert json.loads(path.read_text()) == FACTS
        assert read_facts(path) == FACTS
    assert read_facts(path) == {}
    with facts_file(None, FACTS):
        assert not path.exists()


def test_file_that_a_successor_has_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "service.json"
    successor = {**FACTS, "pid": "18"}
    with facts_file(path, FACTS):
        path.write_text(json.dumps(successor))
    assert read_facts(path) == successor


def test_ready_is_said_once_all_are_and_a_signal_stops_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def story() -> None:
        one, two, stopping = Service(), Service(), asyncio.Event()
        asked = 0

        def is_ready() -> bool:
            nonlocal asked
            asked += 1
            if asked <= 2:
                assert capsys.readouterr().out == ""
            return asked >= 2

        serving = asyncio.create_task(
            serve_until_stopped(
                [one.run(), two.run()], [one.stop, two.stop], is_ready, stopping, FACTS
            )
        )
        while not (said := capsys.readouterr().out):
            await asyncio.sleep(0)
        assert said == "ready http=127.0.0.1:1 pid=17\n"
        assert not one.ended.is_set()
        stopping.set()
        await serving
        assert one.ended.is_set()
        assert two.ended.is_set()

    asyncio.run(story())


def test_service_that_ends_by_itself_ends_the_process_with_its_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def story() -> None:
        one, two = Service(), Service()
        one.failure = ZeroDivisionError()
        one.ended.set()
        with pytest.raises(ZeroDivisionError):
            await serve_until_stopped(
                [one.run(), two.run()], [two.stop], lambda: False, asyncio.Event(), FACTS
            )
        assert two.ended.is_set()

    asyncio.run(story())
    assert capsys.readouterr().out == ""


def test_orphan_that_cannot_stop_in_order_exits() -> None:
    """For example a gateway whose broker was killed together with the supervisor of both."""
    program = """
import asyncio
from kafkaesque.service.process import stop_event

async def main():
    stopping = stop_event(True, orphan_seconds_max=0.05)
    print("ready", flush=True)
    await stopping.wait()
    print("stopping", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert said == b"stopping\n"
    assert process.returncode == 1
