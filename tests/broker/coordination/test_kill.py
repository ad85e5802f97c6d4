"""kill -9 of the serving process: what was acknowledged is there, sessions go on, order is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance_zookeeper.raw import Closed, RawClient, body, create_body

ROOT = Path(__file__).resolve().parents[3]
CREATE, EXISTS, GET, CHILDREN, PING = 1, 3, 4, 8, 11


@contextmanager
def serving(directory: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance_zookeeper.serving", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1], process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_acknowledged_writes_and_sessions_outlive_kill_9(tmp_path: Path) -> None:
    acknowledged = 0
    with serving(tmp_path) as (address, process), RawClient(address) as client:
        session = client.connect(timeout_ms=30_000)
        client.ask(CREATE, create_body("/queue"))
        client.ask(CREATE, create_body("/mine", b"here", flags=1))
        sent = 0
        try:
            while True:
                for _ in range(50):
                    client.send(CREATE, create_body("/queue/n-", flags=2))
                    sent += 1
                while acknowledged < sent - 20:
                    assert client.receive().code == 0
                    acknowledged += 1
                    if acknowledged == 500:
                        process.kill()
        except (Closed, OSError):
            pass
    assert acknowledged >= 500
    with serving(tmp_path) as (address, _), RawClient(address) as again:
        back = again.connect(
            timeout_ms=30_000, session_id=session.session_id, password=session.password
        )
        assert back == session
        assert again.ask(GET, body("/mine", False)).reader.buffer() == b"here"
        reader = again.ask(CHILDREN, body("/queue", False)).reader
        found = sorted(reader.vector(reader.string, 4))
        assert len(found) >= acknowledged
        # A prefix of what was sent, in order and without a hole.
        assert found == [f"n-{number:010d}" for number in range(len(found))]
