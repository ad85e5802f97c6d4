"""A service as a process: ready, killed, started again, stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkaesque.lab.harness.cluster import TargetFailed
from kafkaesque.lab.harness.service_process import ServiceProcess

PROGRAM = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("warming up", flush=True)
print("ready http=127.0.0.1:1 word", *sys.argv[1:], flush=True)
while True:
    signal.pause()
"""


def test_service_is_ready_killed_started_again_and_stopped(tmp_path: Path) -> None:
    service = ServiceProcess("s", [sys.executable, "-c", PROGRAM], tmp_path)
    assert not service.is_running
    service.start()
    assert service.facts == {"http": "127.0.0.1:1"}
    first = service.pid
    service.kill()
    assert not service.is_running
    service.launch("name=second")
    service.wait_ready()
    assert service.facts == {"http": "127.0.0.1:1", "name": "second"}
    assert service.pid not in (0, first)
    assert service.stop() == 7
    assert service.stop() == 0, "it has stopped already"


def test_error_of_a_service_that_never_gets_ready_contains_its_log(tmp_path: Path) -> None:
    service = ServiceProcess("s", [sys.executable, "-c", "raise SystemExit('no such thing')"],
                             tmp_path)  # fmt: skip
    with pytest.raises(TargetFailed, match="no such thing"):
        service.start()
    service.kill()
