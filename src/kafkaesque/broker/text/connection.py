"""One text client: reads a line, writes its answer, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kafkaesque.broker.cluster.rules.controller import NewTopic
from kafkaesque.broker.text.membership import GroupMembership
from kafkaesque.broker.text.requests import ClusterRequestFailed, Requests
from kafkaesque.broker.text.rules import replies
from kafkaesque.broker.text.rules.commands import (
    HELP,
    BadCommand,
    Command,
    Consume,
    ForeignProtocol,
    Help,
    Publish,
    Quit,
    Subscribe,
    Topics,
    is_pattern,
    matches,
    parse,
)
from kafkaesque.broker.text.rules.messages import read_message
from kafkaesque.broker.text.rules.partitioning import RoundRobin, partition_of_key
from kafkaesque.broker.text.subscription import TextSubscription
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.token_bucket import TokenBucket

logger = logging.getLogger("kafkaesque.text")

LINES_PER_SECOND: Final = 1000
LINES_AT_ONCE: Final = 2000
SUBSCRIPTIONS_MAX: Final = 16
IDLE_SECONDS: Final = 600.0

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class TextConnection:
    """`run` serves the client until it disconnects."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        requests: Requests,
        round_robin: RoundRobin,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`sleep` delays a client that sends too fast."""
        self._reader = reader
        self._writer = writer
        self._requests = requests
        self._round_robin = round_robin
        self._clock = clock
        self._sleep = sleep
        self._bucket = TokenBucket(LINES_PER_SECOND, LINES_AT_ONCE, clock.monotonic())
        self._subscriptions: dict[str, TextSubscription] = {}

    async def run(self) -> None:
        try:
            await self._send(replies.GREETING)
            while (line := await self._next_line()) is not None:
                if not await self._answer(line):
                    break
        except (ConnectionError, TimeoutError) as error:
            logger.info("a text client disconnected: %s", error)
        finally:
            for subscription in self._subscriptions.values():
                await subscription.leave()
            self._writer.close()

    async def _next_line(self) -> str | None:
        """None at the end of the stream. Raises TimeoutError for an idle client."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError:
            await self._send(replies.error("LINE_TOO_LONG", "the line is too long"))
            return None
        if not line:
            return None
        wait_s = self._bucket.take_next(self._clock.monotonic())
        if wait_s:
            await self._sleep(wait_s)
        return line.decode(errors="replace").strip("\r\n")

    async def _answer(self, line: str) -> bool:
        """False after the last command."""
        try:
            command = parse(line)
            if command is not None:
                await self._execute(command)
            return not isinstance(command, Quit)
        except ForeignProtocol:
            await self._send(replies.error("NOT_HTTP", "this is not a web server"))
            return False
        except BadCommand as error:
            await self._send(replies.error("BAD_COMMAND", str(error)))
        except ClusterRequestFailed as error:
            await self._send(replies.error(error.code.name, str(error)))
        except KafkaError as error:
            await self._send(replies.error(error.code.name, str(error)))
        return True

    async def _execute(self, command: Command) -> None:
        match command:
            case Publish():
                await self._publish(command)
            case Subscribe():
                await self._subscribe(command)
            case Consume():
                await self._consume(command)
            case Topics(pattern):
                await self._list_topics(pattern)
            case Help():
                await self._send(*HELP, replies.end(len(HELP)))
            case Quit():
                for subscription in self._subscriptions.values():
                    await subscription.acknowledge()
                await self._send(replies.BYE)

    async def _publish(self, command: Publish) -> None:
        message = read_message(command.message)
        count = await self._requests.ensure_topic(command.topic)
        if message.key is None:
            partition = self._round_robin.next(command.topic, count)
        else:
            partition = partition_of_key(message.key, count)
        now_ms = self._clock.wall_ms()
        offset = await self._requests.produce(command.topic, partition, message, now_ms)
        await self._send(replies.published(partition, offset))

    async def _subscribe(self, command: Subscribe) -> None:
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise BadCommand(f"a connection may have {SUBSCRIPTIONS_MAX} subscriptions")
        if not is_pattern(command.topics):
            await self._ensure_topic(command)
        membership = GroupMembership(self._requests, command)
        membership.start()
        name = f"s{len(self._subscriptions) + 1}"
        # Added before it has joined: if the client disconnects meanwhile, it leaves the group.
        self._subscriptions[name] = TextSubscription(self._requests, membership)
        try:
            assignment = await membership.joined()
        except ClusterRequestFailed:
            await self._subscriptions.pop(name).leave()
            raise
        await self._send(replies.subscribed(name, assignment))

    async def _ensure_topic(self, command: Subscribe) -> None:
        """Creates a new topic with the requested number of partitions."""
        cluster = self._requests.cluster
        wanted = command.partition_count
        found = cluster.tables.by_name.get(command.topics)
        if (
            found is None
            and wanted is not None
            and cluster.settings.current.auto_create_topics_enable
        ):
            refused = await cluster.create_topics([NewTopic(command.topics, wanted)])
            for error in refused.values():
                raise error
        count = await self._requests.ensure_topic(command.topics)
        if wanted is not None and wanted > count:
            raise BadCommand(f"{command.topics} has {count} partitions")

    async def _consume(self, command: Consume) -> None:
        subscription = self._subscriptions.get(command.subscription)
        if subscription is None:
            raise BadCommand(f"no subscription {command.subscription[:20]!r} on this connection")
        shown = await subscription.consume(command)
        lines = [replies.message(*place, record) for place, record in shown.messages]
        await self._send(*lines, replies.end(len(lines), shown.more))

    async def _list_topics(self, pattern: str) -> None:
        tables = self._requests.cluster.tables
        found = [
            replies.topic_line(name, topic.partition_count)
            for name, topic in sorted(tables.by_name.items())
            if matches(pattern, name)
        ]
        await self._send(*found, replies.end(len(found)))

    async def _send(self, *lines: str) -> None:
        """Waits until the client has read enough."""
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        async with asyncio.timeout(IDLE_SECONDS):
            await self._writer.drain()
