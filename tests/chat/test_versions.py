from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.chat.world import World
from tests.gateway.logs import records_of, with_log
from tests.waiting import until

from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.rules.versions import to_home_version
from kafkaesque.chat.translator import Translator
from kafkaesque.client.ports import Log, Record, WriterOptions
from kafkaesque.events.gateway import GATEWAY_TOPICS, command_topic


@pytest.mark.parametrize(
    ("v2_command", "v1_command"),
    [
        (
            {"op": "say", "body": {"to": "bob", "text": "x"}},
            {"op": "message.send", "body": {"to": "bob", "text": "x"}},
        ),
        (
            {"op": "say", "body": {"to": "#kafka", "text": "x", "message_id": "m"}},
            {"op": "room.post", "body": {"room": "kafka", "text": "x", "message_id": "m"}},
        ),
        ({"op": "typing", "body": {"to": "bob"}}, {"op": "typing", "body": {"to": "bob"}}),
        ({"op": "say", "body": 7}, {"op": "say", "body": 7}),
    ],
)
def test_v2_commands_translate_to_v1(v2_command: object, v1_command: object) -> None:
    translated = to_home_version("v2", msgspec.json.encode(v2_command))
    assert msgspec.json.decode(translated or b"") == v1_command
    assert to_home_version("v1", msgspec.json.encode(v2_command)) == msgspec.json.encode(v2_command)


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[" * 9999, None, b"7"])
def test_malformed_commands_are_forwarded_unchanged(value: bytes | None) -> None:
    assert to_home_version("v2", value) == value


def test_v1_back_ends_reject_v2_commands() -> None:
    world = World()
    world.open("ann")
    sent = world.send("ann", "say", to="bob", text="x")
    world.settle()
    assert world.result("ann", sent)["code"] == "unknown-op"


def test_translator_forwards_commands_once_in_order_with_their_headers() -> None:
    async def story(log: Log) -> None:
        await log.admin.ensure_topics([*GATEWAY_TOPICS, command_topic("v2")])
        writer = await log.open_writer(WriterOptions())
        config = BackendConfig(poll_wait_ms=10)
        translator = Translator(log, "t1", "v2", config)
        task = asyncio.create_task(translator.run())
        for number in range(5):
            value = msgspec.json.encode({"op": "say", "body": {"to": "bob", "text": f"{number}"}})
            headers = (("id", b"c%d" % number),)
            await writer.send([Record("gw.cmd.v2", b"ann", value, headers)])
        await until(lambda: translator.counts.commands == 5)
        translator.stop()
        await task
        await writer.close()
        passed = await records_of(log, "gw.cmd.v1")
        assert [dict(one.headers)["id"] for one in passed] == [b"c%d" % n for n in range(5)]
        assert {one.key for one in passed} == {b"ann"}
        assert b"message.send" in (passed[0].value or b"")

    with_log(story)
