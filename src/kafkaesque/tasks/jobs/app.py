"""The application of the chat's jobs: its three tasks, and which events call them.

    chat.message.sent       notify the recipient now; a timer mails in 24 h; count
    chat.message.read       cancel the timer; count
    chat.message.deleted    cancel the timer; count
    the others              count

The sender of a message waits for none of this, and no failure here affects the chat.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientSession, ClientTimeout

from kafkaesque.client.ports import Log, Received, Record
from kafkaesque.events.chat import (
    CHAT,
    CHAT_EVENTS,
    MessageDeleted,
    MessageRead,
    MessageSent,
    MessageStage,
)
from kafkaesque.events.envelope import Envelope, UnknownEvent
from kafkaesque.events.gateway import INBOX, Event
from kafkaesque.events.tasks import CHAT_METRICS
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks.app import App, Task
from kafkaesque.tasks.errors import Reject
from kafkaesque.tasks.jobs.config import JobsConfig
from kafkaesque.tasks.jobs.mail import Mailer, Unread
from kafkaesque.tasks.jobs.presence import ConnectedUsers
from kafkaesque.tasks.jobs.reads import ReadMarks
from kafkaesque.tasks.listener import Listener
from kafkaesque.tasks.rules.retry import Retry

NAME = "chat-jobs"
WEBHOOK_SECONDS_MAX = 10.0
MINUTE_MS = 60_000
NOTICE = "notification"
"""Type of the inbox event. The message itself is another event, which the back end writes."""


class ChatJobs:
    """The three jobs and their resources: mail relay, webhook, presence, read marks."""

    def __init__(
        self,
        config: JobsConfig,
        *,
        password: str = "",
        zookeeper: str = "",
        data: Path | None = None,
    ) -> None:
        self._config = config
        self._zookeeper = zookeeper
        self._data = data
        self._mailer = Mailer(config, password) if config.mail_host else None
        self._reads: ReadMarks | None = None
        self._connected: ConnectedUsers | None = None
        self._session: ClientSession | None = None
        self.app = App(NAME)
        self.app.resources.append(self._resources)
        self.app.listen(Listener("events", CHAT_EVENTS, self._follow, NAME))
        patient = Retry(attempts=8, first_s=5.0, factor=4.0, most_s=6 * 3600.0)
        declare = self.app.task
        self.notify: Task[..., Any] = declare(
            name="notify", key=lambda recipient: recipient, time_limit_s=30.0,
            retry=Retry(attempts=6, first_s=1.0, factor=4.0), expires_s=24 * 3600.0,
        )(self._notify)  # fmt: skip
        self.mail_unread: Task[..., Any] = declare(
            name="mail_unread", retry=patient, time_limit_s=60.0
        )(self._mail_unread)
        self.count: Task[..., Any] = declare(name="count", effectively_once=True)(self._count)

    @asynccontextmanager
    async def _resources(self, log: Log) -> AsyncIterator[None]:
        await log.admin.ensure_topics([INBOX, CHAT_METRICS])
        path = None if self._data is None else self._data / "reads.db"
        timeout = ClientTimeout(total=WEBHOOK_SECONDS_MAX)
        async with (
            ReadMarks.opened(log, path) as self._reads,
            ConnectedUsers.opened(log, self._zookeeper) as self._connected,
            ClientSession(timeout=timeout) as self._session,
        ):
            yield

    # -- from events to calls --------------------------------------------------------------------------

    def _follow(self, record: Received) -> Iterator[Record]:
        try:
            event = CHAT.decode(record.value or b"")
        except UnknownEvent:
            return  # a newer chat wrote it
        yield from self._calls(event)

    def _calls(self, event: Envelope[Any]) -> Iterator[Record]:
        body: MessageStage = event.body
        yield self.count.options(id=event.id).record(body.STAGE, event.time_ms, body.sent_ms)
        if body.recipient.startswith("#"):
            return  # a room: its members have subscribed
        timer = f"unread/{body.message_id}"
        if isinstance(body, MessageSent):
            arguments = (
                body.message_id,
                body.conversation_id,
                body.sender,
                body.recipient,
                body.sent_ms,
            )
            yield self.notify.options(id=f"notify/{body.message_id}").record(*arguments)
            due_ms = body.sent_ms + self._config.unread_after_ms
            yield self.mail_unread.options(id=timer).timer(due_ms, *arguments)
        elif isinstance(body, MessageRead | MessageDeleted):
            yield self.app.cancel_record(timer)

    # -- the tasks -------------------------------------------------------------------------------------

    async def _notify(
        self, message_id: str, conversation_id: str, sender: str, recipient: str, sent_ms: int
    ) -> str:
        notice = {
            "message_id": message_id,
            "conversation_id": conversation_id,
            "from": sender,
            "sent_ms": sent_ms,
        }
        if self._connected is not None and self._connected.is_connected(recipient):
            now_ms = self.app.clock.wall_ms()
            event = Event(NOTICE, msgspec.Raw(msgspec.json.encode(notice)), at_ms=now_ms)
            value = msgspec.json.encode(event)
            await self.app.send_records([Record(INBOX.name, recipient.encode(), value)])
            return "inbox"
        if not self._config.webhook_url or self._session is None:
            return "nobody"
        await self._post({**notice, "to": recipient}, f"notify/{message_id}")
        return "webhook"

    async def _post(self, notice: dict[str, Any], key: str) -> None:
        session = self._session
        if session is None:
            return
        headers = {"Idempotency-Key": key}
        async with session.post(self._config.webhook_url, json=notice, headers=headers) as answer:
            # 408 and 429 ask for a retry; any other 4xx would be the same next time.
            if 400 <= answer.status < 500 and answer.status not in (408, 429):
                raise Reject(f"the webhook answered {answer.status}")
            answer.raise_for_status()

    async def _mail_unread(
        self, message_id: str, conversation_id: str, sender: str, recipient: str, sent_ms: int
    ) -> str:
        """Checks the read marks again, since the cancellation may have come too late."""
        if self._reads is not None and await self._reads.is_settled(message_id):
            return "read"
        if self._mailer is None:
            return "nobody"
        await self._mailer.send_unread(Unread(message_id, sender, recipient, sent_ms))
        return "mailed"

    async def _count(self, stage: str, at_ms: int, sent_ms: int) -> None:
        """Writes one delta for each stage of each message, exactly once, so that sums are exact."""
        minute_ms = at_ms - at_ms % MINUTE_MS
        delta = {
            "minute_ms": minute_ms,
            "stage": stage,
            "count": 1,
            "latency_ms": max(0, at_ms - sent_ms),
        }
        key = f"{minute_ms}/{stage}".encode()
        record = Record(CHAT_METRICS.name, key, msgspec.json.encode(delta),
                        timestamp_ms=TimestampMs(at_ms))  # fmt: skip
        await self.app.send_records([record])
