from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from kafkaesque.tasks.timers.election import Elected, ElectionLost


@pytest.mark.parametrize(
    ("call", "error"), [("start", KazooTimeoutError), ("ensure_path", ConnectionLoss)]
)
def test_a_service_that_goes_away_while_we_join_is_an_election_lost_and_leaves_no_client(
    monkeypatch: pytest.MonkeyPatch, call: str, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(KazooClient, "start", lambda *_, **__: None)
    monkeypatch.setattr(KazooClient, call, fail)
    closed: list[KazooClient] = []
    close = KazooClient.close

    def close_and_note(client: KazooClient) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(KazooClient, "close", close_and_note)

    async def test() -> None:
        with pytest.raises(ElectionLost):
            await Elected("127.0.0.1:1", "t1").open()

    asyncio.run(test())
    assert len(closed) == 1
