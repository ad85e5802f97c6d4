"""A whole node in the test's own thread: handlers are called as the dispatcher calls them.

The loop runs only while a request is under way. Every answer makes the trip through its bytes, in the
version of its request, so a test sees what a client would see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

from kafkaesque.broker.node import Node
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.server.call import Call, ClientHost
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handlers import load_handlers
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.model.settings import broker_config
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.codec import (
    decode,
    encode,
)
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkaesque.wire.table import Request, Response

T = TypeVar("T")
HANDLERS = load_handlers()


class LocalBroker:
    """Node 1, started, in a separate directory; `settings` by their Kafka names."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], clock: Clock | None = None
    ) -> None:
        self._runner = asyncio.Runner()
        values = {
            "node.id": "1",
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "http.listener": "",
            "flush": "never",
        }
        config = broker_config({**values, **settings})
        self._node = self._runner.run(Node.start(config, clock))
        self._is_stopped = False

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._runner.run(self._node.stop())
            self._runner.close()

    @property
    def context(self) -> Context:
        return self._node.context

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, request: Request, version: int, connected_at: float | None = None) -> Any:
        """The answer to `request`, encoded and decoded in `version`. `connected_at` is the
        (monotonic) time at which its connection was made."""
        return self.run(self.answer(request, version, connected_at))

    def ask_together(self, *requests: Request, version: int) -> list[Any]:
        """Answers to requests that are under way at the same time."""

        async def together() -> list[Any]:
            return await asyncio.gather(*(self.answer(request, version) for request in requests))

        return self.run(together())

    async def answer(
        self, request: Request, version: int, connected_at: float | None = None
    ) -> Any:
        handler = HANDLERS[request.API_KEY]
        assert handler.versions[0] <= version <= handler.versions[1]
        sent = decode(
            type(request), memoryview(bytearray().join(encode(request, version))), version
        )
        host = "/127.0.0.1"
        if connected_at is not None:
            host = ClientHost.at(host, connected_at)
        answer = handler.handle(self.context, sent, Call(version, "test", host))
        response: Response = await answer if isawaitable(answer) else answer
        return decode(type(response), memoryview(b"".join(encode(response, version))), version)

    # -- what tests need to be there ------------------------------------------------------------

    def create(self, name: str, partition_count: int = 1, **configs: str) -> None:
        """A topic; settings with underscores for dots."""
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=1,
            assignments=[],
            configs=settings,
        )
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == ErrorCode.NONE, result

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.context.partitions.get(topic, index)

    def append(self, topic: str, *timestamps: int, index: int = 0) -> Appended:
        """One batch with a record for each timestamp."""

        async def append() -> Appended:
            records = [Record(Offset(0), TimestampMs(time), b"k", b"v") for time in timestamps]
            return self.partition(topic, index).append_own(encode_batch(records))

        return self.run(append())


def every_version(request: type[Request]) -> list[int]:
    low, high = HANDLERS[request.API_KEY].versions
    return list(range(low, high + 1))
