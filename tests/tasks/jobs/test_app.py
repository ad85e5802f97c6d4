"""The three jobs on the virtual clock, with a real SMTP server and a real webhook."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from tests.waiting import until

from kafkaesque.client.ports import Record
from kafkaesque.events.chat import (
    CHAT_EVENTS,
    MessageDeleted,
    MessageRead,
    MessageSent,
    MessageStage,
    stage_envelope,
)
from kafkaesque.events.envelope import encode
from kafkaesque.events.gateway import INBOX, PRESENCE, Event, Presence
from kafkaesque.events.tasks import CHAT_METRICS
from kafkaesque.tasks.jobs.app import ChatJobs
from kafkaesque.tasks.jobs.catcher import MailCatcher
from kafkaesque.tasks.jobs.config import jobs_config
from kafkaesque.tasks.tester import START_MS, TaskTester


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ssl.SSLContext, Path]]:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return context, path


@asynccontextmanager
async def stage(
    authority: tuple[ssl.SSLContext, Path], **settings: str
) -> AsyncIterator[tuple[TaskTester, MailCatcher, ChatJobs]]:
    async with MailCatcher(context=authority[0]) as catcher:
        host, _, port = (await catcher.start()).rpartition(":")
        config = jobs_config(
            {"mail.host": host, "mail.port": port, "mail.ca.file": str(authority[1]),
             "mail.address": "{user}@example.org", **settings}
        )  # fmt: skip
        jobs = ChatJobs(config)
        async with TaskTester(jobs.app) as tester:
            yield tester, catcher, jobs


def sent(number: int = 1, to: str = "bob") -> MessageSent:
    return MessageSent(message_id=f"m{number}", conversation_id="c", sender="ann", recipient=to,
                       sent_ms=START_MS)  # type: ignore[arg-type] # fmt: skip


async def happen(tester: TaskTester, *stages: MessageStage) -> None:
    writer = await tester.log.open_writer()
    await writer.send(
        [Record(CHAT_EVENTS.name, b"c", encode(stage_envelope(one))) for one in stages]
    )
    await tester.settle()


def read(number: int, at_ms: int) -> MessageRead:
    of = sent(number)
    return MessageRead(message_id=of.message_id, conversation_id="c", sender="ann", recipient="bob",
                       sent_ms=of.sent_ms, read_ms=at_ms)  # type: ignore[arg-type] # fmt: skip


def test_messages_unread_for_24_hours_are_mailed_over_tls_and_read_ones_are_not(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority) as (tester, catcher, _):
            await happen(tester, sent(1), sent(2), sent(3, to="#room"))
            await tester.advance(hours=23)
            await happen(tester, read(2, START_MS + 5000))
            assert catcher.caught == []
            await tester.advance(hours=2)
            (mail,) = catcher.caught
            assert mail.was_encrypted
            assert mail.recipients == ("bob@example.org",)
            assert mail.message["Subject"] == "A message from ann is waiting for you"
            assert mail.message["Message-ID"] == "<unread.m1@localhost>"
            text = mail.message.get_body(("plain",))
            assert text is not None
            assert "Hello bob" in text.get_content()
            assert await tester.dead_letters() == []

    asyncio.run(test())


def test_a_read_mark_is_checked_again_when_the_timer_fires(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority) as (tester, catcher, jobs):
            # This one is not cancelled: it runs as if the cancellation had come too late.
            await happen(tester, sent(1), read(1, START_MS + 1))
            await jobs.mail_unread.send("m1", "c", "ann", "bob", START_MS)
            await jobs.mail_unread.send("m9", "c", "ann", "bob", START_MS)
            await tester.settle()
            assert [mail.message["Message-ID"] for mail in catcher.caught] == [
                "<unread.m9@localhost>"
            ]

    asyncio.run(test())


def test_a_deleted_message_is_not_mailed(authority: tuple[ssl.SSLContext, Path]) -> None:
    async def test() -> None:
        async with stage(authority) as (tester, catcher, _):
            gone = MessageDeleted(message_id="m1", conversation_id="c", sender="ann", recipient="bob",
                                  sent_ms=START_MS, deleted_ms=START_MS + 1)  # type: ignore[arg-type] # fmt: skip
            await happen(tester, sent(1), gone)
            await tester.advance(days=2)
            assert catcher.caught == []

    asyncio.run(test())


def test_a_temporary_smtp_error_is_retried_and_a_permanent_one_rejected(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority, **{"unread.after.ms": "1000"}) as (tester, catcher, _):
            catcher.refusal = "451 later"
            await happen(tester, sent(1))
            await tester.advance(seconds=2)
            assert len(tester.failed("mail_unread")) == 1
            catcher.refusal = None
            await tester.advance(minutes=1)
            assert len(catcher.caught) == 1
            catcher.refusal = "554 never"
            await happen(tester, sent(2))
            await tester.advance(hours=1)
            (letter,) = await tester.dead_letters()
            assert (letter.reason, letter.task) == ("rejected", "mail_unread")

    asyncio.run(test())


@pytest.mark.parametrize(
    "name",
    [
        "victim@evil.example, x",
        "victim@evil.example",
        "victim@evil.example,",
        "victim@evil.example\r\nBcc: x",
        "victim@evil.example;x",
        "<victim@evil.example> x",
        '"victim@evil.example" x',
        "victim@evil.example(x)",
        "victim%evil.example",
        "evil.example!victim",
        "a b",
        "x\u2028y",
        "x" * 300,
        "..",
    ],
)
def test_a_name_that_is_not_one_plain_address_is_rejected_and_not_retried(
    authority: tuple[ssl.SSLContext, Path], name: str
) -> None:
    async def test() -> None:
        async with stage(authority) as (tester, catcher, jobs):
            await jobs.mail_unread.send("m1", "c", "ann", name, START_MS)
            await tester.advance(hours=1)
            (letter,) = await tester.dead_letters()
            assert (letter.reason, letter.task) == ("rejected", "mail_unread")
            assert "no mail can be addressed to" in letter.failure
            assert catcher.caught == []

    asyncio.run(test())


def test_a_name_may_be_the_whole_address_if_the_settings_say_so(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority, **{"mail.address": "{user}"}) as (tester, catcher, jobs):
            await jobs.mail_unread.send("m1", "c", "ann", "bob.b+x@example.net", START_MS)
            await tester.settle()
            (mail,) = catcher.caught
            assert mail.recipients == ("bob.b+x@example.net",)

    asyncio.run(test())


@pytest.mark.parametrize("setting", ["Chat <{user}@example.org>", "{name}@example.org"])
def test_the_address_setting_is_checked_at_the_start(setting: str) -> None:
    config = jobs_config({"mail.host": "localhost", "mail.address": setting})
    with pytest.raises(ValueError, match=r"mail\.address"):
        ChatJobs(config)


def test_without_its_certificate_the_relay_is_not_trusted(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority, **{"unread.after.ms": "1", "mail.ca.file": ""}) as (
            tester, catcher, _
        ):  # fmt: skip
            await happen(tester, sent(1))
            await tester.advance(seconds=1)
            assert catcher.caught == []
            assert len(tester.failed("mail_unread")) == 1

    asyncio.run(test())


def test_a_connected_recipient_gets_an_inbox_event_and_others_a_webhook_call(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    posted: list[dict[str, Any]] = []
    answers = [503, 200, 410]

    async def hook(request: web.Request) -> web.Response:
        posted.append({**await request.json(), "key": request.headers["Idempotency-Key"]})
        return web.Response(status=answers[len(posted) - 1])

    async def test() -> None:
        application = web.Application()
        application.add_routes([web.post("/hook", hook)])
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        try:
            async with stage(authority, **{"webhook.url": url}) as (tester, _, jobs):
                writer = await tester.log.open_writer()
                here = msgspec.json.encode(Presence("gw-1", 1, START_MS))
                await writer.send([Record(PRESENCE.name, b"carl", here)])
                connected = jobs._connected
                assert connected is not None
                await until(lambda: connected.is_connected("carl"))
                await happen(tester, sent(1, to="carl"), sent(2, to="bob"))
                (record,) = tester.records(INBOX.name)
                event = msgspec.json.decode(record.value or b"", type=Event)
                assert (record.key, event.type) == (b"carl", "notification")
                assert msgspec.json.decode(event.body)["message_id"] == "m1"
                await tester.advance(minutes=1)
                assert [one["key"] for one in posted] == ["notify/m2"] * 2
                assert (posted[0]["to"], posted[0]["from"]) == ("bob", "ann")
                await happen(tester, sent(3, to="bob"))
                await tester.advance(minutes=1)
                (letter,) = await tester.dead_letters()
                assert "410" in letter.failure
        finally:
            await runner.cleanup()

    asyncio.run(test())


def test_every_stage_is_counted_once_and_an_unreadable_event_is_a_dead_letter(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    async def test() -> None:
        async with stage(authority) as (tester, _, _):
            writer = await tester.log.open_writer()
            await writer.send([Record(CHAT_EVENTS.name, b"c", b"\xff"),
                               Record(CHAT_EVENTS.name, b"c", None)])  # fmt: skip
            await happen(tester, sent(1), read(1, START_MS + 70_000))
            deltas = [
                msgspec.json.decode(one.value or b"") for one in tester.records(CHAT_METRICS.name)
            ]
            assert sorted((one["stage"], one["count"], one["latency_ms"]) for one in deltas) == [
                ("read", 1, 70_000), ("sent", 1, 0)
            ]  # fmt: skip
            letters = await tester.dead_letters()
            assert [letter.reason for letter in letters] == ["unreadable"] * 2
            assert not any(letter.can_be_redriven for letter in letters)

    asyncio.run(test())
