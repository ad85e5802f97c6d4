"""A back end of a later application version: translates its commands and forwards them to v1.

The translated command and the input offset are written in one transaction, so each command is forwarded
exactly once and in its user's order. Id, correlation and gateway are forwarded too, so the v1 back ends
answer the client directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from kafkaesque.chat.backend import RETRY_SECONDS, RETRY_SECONDS_MAX, BackendState
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.global_tables import GlobalTables
from kafkaesque.chat.partition import BackendCounts
from kafkaesque.chat.rules.versions import HOME_VERSION, to_home_version
from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import (
    Log,
    LogError,
    Record,
    Subscription,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.events.chat import CHAT_TOPICS
from kafkaesque.events.gateway import GATEWAY_TOPICS, command_topic
from kafkaesque.model.ids import TopicPartition
from kafkaesque.service.pass_backoff import PassBackoff, sleep_unless

logger = logging.getLogger(__name__)


class Translator:
    """Runs until `stop`. It has the interface of a Backend, but keeps no state."""

    def __init__(self, log: Log, name: str, version: str, config: BackendConfig) -> None:
        self._log = log
        self._config = config
        self._version = version
        self.name = name
        self._stopping = asyncio.Event()
        self.counts = BackendCounts()
        self.state = BackendState()
        self.tables = GlobalTables(log, GatewayLiveness("", "chat"))

    @property
    def group(self) -> str:
        return f"chat-backend-{self._version}"

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Retries after log errors. Raises TransactionsUnsupported."""
        backoff = PassBackoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while not self._stopping.is_set():
            backoff.start()
            try:
                await self._pass()
            except TransactionsUnsupported:
                raise
            except LogError as error:
                self.state.error = str(error)
                wait_s = backoff.next_s()
                logger.warning("pass failed: %s; next pass in %.1f s", error, wait_s)
                await sleep_unless(self._stopping, wait_s)

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        held = {*self.state.partitions, *(place.partition for place in places)}
        self.state.partitions = tuple(sorted(held))
        self.state.ready = True
        self.state.error = None

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        revoked = {place.partition for place in places}
        self.state.partitions = tuple(one for one in self.state.partitions if one not in revoked)

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        await self.revoked(places)

    async def _pass(self) -> None:
        self.state.passes += 1
        topic = command_topic(self._version)
        await self._log.admin.ensure_topics([*GATEWAY_TOPICS, *CHAT_TOPICS, topic])
        options = WriterOptions(
            transactional_id=f"{self.group}-{self.name}",
            linger_ms=0,
            delivery_timeout_ms=self._config.transaction_timeout_ms,
        )
        async with contextlib.AsyncExitStack() as stack:
            writer = await self._log.open_writer(options)
            stack.push_async_callback(writer.close)
            subscription = Subscription([topic.name], self.group, listener=self)
            reader = await self._log.open_reader(subscription)
            stack.push_async_callback(reader.close)
            home = command_topic(HOME_VERSION).name
            while not self._stopping.is_set():
                wait_s = self._config.poll_wait_ms / 1000
                records = await reader.read(self._config.batch_records_max, wait_s)
                if not records:
                    continue
                started_s = time.monotonic()
                async with writer.transaction():
                    await writer.send(
                        Record(
                            home, one.key, to_home_version(self._version, one.value), one.headers
                        )
                        for one in records
                    )
                    await writer.send_offsets(reader)
                self.counts.commands += len(records)
                self.state.add_transaction(time.monotonic() - started_s)
