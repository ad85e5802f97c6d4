"""kill -9 of a broker: acknowledged writes and sessions survive, and their order is kept."""

from __future__ import annotations

from pathlib import Path

from tests.conformance_zookeeper.raw import Closed, RawClient, body, create_body

from kafkaesque.testing.broker_process import BrokerProcess

SETTINGS = {"coordination.listener": "127.0.0.1:0"}
CREATE, EXISTS, GET, CHILDREN, PING = 1, 3, 4, 8, 11


def test_acknowledged_writes_and_sessions_outlive_kill_9(tmp_path: Path) -> None:
    acknowledged = 0
    with (
        BrokerProcess(tmp_path, SETTINGS) as broker,
        RawClient(broker.facts["coordination"]) as client,
    ):
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
                        broker.kill()
        except (Closed, OSError):
            pass
    assert acknowledged >= 500
    with (
        BrokerProcess(tmp_path, SETTINGS) as broker,
        RawClient(broker.facts["coordination"]) as again,
    ):
        back = again.connect(
            timeout_ms=30_000, session_id=session.session_id, password=session.password
        )
        assert back == session
        assert again.ask(GET, body("/mine", False)).reader.buffer() == b"here"
        reader = again.ask(CHILDREN, body("/queue", False)).reader
        found = sorted(reader.vector(reader.string, 4))
        assert len(found) >= acknowledged
        # A prefix of the writes, in order and without gaps.
        assert found == [f"n-{number:010d}" for number in range(len(found))]
