"""Back ends on a real broker, in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.chat.fake_gateway import FakeGateway
from tests.gateway.logs import Place
from tests.waiting import until

from kafkaesque.chat.backend import Backend, PartitionCountMismatch
from kafkaesque.chat.config import BackendConfig
from kafkaesque.client.memory import MemoryLog
from kafkaesque.events.chat import COMMAND_PARTITIONS
from kafkaesque.events.topics import TopicSpec

_names = (f"u{number}" for number in itertools.count())


def fresh() -> str:
    return next(_names)


@asynccontextmanager
async def running(place: Place, name: str, config: BackendConfig) -> AsyncIterator[Backend]:
    backend = Backend(place.log(config.log_properties()), name, config)
    task = asyncio.create_task(backend.run())
    try:
        await until(lambda: backend.state.ready or task.done())
        yield backend
    finally:
        backend.stop()
        await task


@asynccontextmanager
async def fake_gateway(place: Place) -> AsyncIterator[FakeGateway]:
    one = FakeGateway(place.log())
    await one.open()
    try:
        yield one
    finally:
        await one.close()


CONFIG = BackendConfig(snapshot_facts=7, poll_wait_ms=50)


def test_accounts_messages_receipts_and_deletion_on_a_real_log(place: Place) -> None:
    ann, bob = fresh(), fresh()

    async def story() -> None:
        async with running(place, "b1", CONFIG) as backend, fake_gateway(place) as clients:
            made = await clients.ask(
                ann, "account.create", anonymous=True, name=ann, password_hash="$argon2id$x"
            )
            assert made["ok"] is True
            await clients.open_accounts(bob)
            sent = await clients.send(ann, "message.send", to=bob, text="hello")
            assert (await clients.result(ann, sent))["ok"] is True
            assert [body["text"] for body in clients.bodies(bob, "message.new")] == ["hello"]
            await clients.send(bob, "message.read", message_ids=[f"{ann}/{sent}"])
            await clients.until(lambda: bool(clients.bodies(ann, "message.read")))
            late = await clients.send(ann, "message.send", to=bob, text="never seen")
            await clients.result(ann, late)
            await clients.send(bob, "account.delete")
            await clients.until(lambda: bool(clients.bodies(ann, "message.undeliverable")))
            gone = await clients.send(ann, "message.send", to=bob, text="?")
            assert (await clients.result(ann, gone))["code"] == "unknown-recipient"
            listed = await clients.ask(ann, "account.list", pattern=f"{ann}*")
            assert ann in [row["name"] for row in listed["body"]["accounts"]]
            assert backend.state.snapshots > 0

    asyncio.run(story())


def test_successor_restores_everything_and_repeats_have_no_effect(place: Place) -> None:
    ann, bob = fresh(), fresh()

    async def story() -> None:
        async with fake_gateway_after_topics(place) as clients:
            async with running(place, "b1", CONFIG):
                await clients.open_accounts(ann, bob)
                for number in range(12):
                    sent = await clients.send(
                        ann, "message.send", f"m{number}", to=bob, text=f"{number}"
                    )
                    await clients.result(ann, sent)
            async with running(place, "b2", CONFIG) as successor:
                for number in range(12):
                    await clients.send(ann, "message.send", f"m{number}", to=bob, text=f"{number}")
                sent = await clients.send(ann, "message.send", to=bob, text="12")
                await clients.result(ann, sent)
                assert successor.counts.repeats == 12
                assert successor.state.predecessors_ended == 0, "b1 left in order"
                texts = [body["text"] for body in clients.bodies(bob, "message.new")]
                assert texts == [f"{number}" for number in range(13)]
                history = await clients.ask(bob, "conversation.history", **{"with": ann})
                assert [one["text"] for one in history["body"]["messages"]] == texts

    asyncio.run(story())


@asynccontextmanager
async def fake_gateway_after_topics(place: Place) -> AsyncIterator[FakeGateway]:
    """A client after a first back end has created the topics."""
    async with running(place, "b0", CONFIG):
        pass
    async with fake_gateway(place) as one:
        yield one


def test_two_back_ends_share_the_partitions_and_one_takes_over(place: Place) -> None:
    users = [fresh() for _ in range(6)]

    async def story() -> None:
        async with (
            fake_gateway_after_topics(place) as clients,
            running(place, "b1", CONFIG) as first,
        ):
            await clients.open_accounts(*users)
            async with running(place, "b2", CONFIG) as second:
                half = COMMAND_PARTITIONS // 2
                await until(
                    lambda: (
                        len(first.state.partitions) == half == len(second.state.partitions)
                        and set(first.state.partitions).isdisjoint(second.state.partitions)
                    )
                )
                await talk(clients, users, "both")
                assert second.counts.handovers > 0
            await until(lambda: len(first.state.partitions) == COMMAND_PARTITIONS)
            await talk(clients, users, "one")

    asyncio.run(story())


async def talk(clients: FakeGateway, users: list[str], text: str) -> None:
    sent = [
        (one, other, await clients.send(one, "message.send", to=other, text=text))
        for one in users
        for other in users
        if one != other
    ]
    for one, other, command_id in sent:
        assert (await clients.result(one, command_id))["ok"] is True
        ids = [body["message_id"] for body in clients.bodies(other, "message.new")]
        assert ids.count(f"{one}/{command_id}") == 1


def test_topics_with_different_partition_counts_are_refused() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TopicSpec("chat.handover", 4, "USER", "")])
        with pytest.raises(PartitionCountMismatch, match=r"chat\.handover"):
            await Backend(log, "b1", CONFIG).run()

    asyncio.run(story())
