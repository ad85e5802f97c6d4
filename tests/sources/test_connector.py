"""A source from network to log: every post arrives once, despite failures of connection, server and log."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from tests.sources.harness import (
    arrived,
    deleted_by_the_end,
    expected,
    local_server,
    running_connector,
)
from tests.waiting import until

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.memory_store import MemoryTransaction
from kafkaesque.client.ports import DeliveryFailed, Log, TransactionsUnsupported, WriterFenced
from kafkaesque.events.social import CURSORS, SourceCursor
from kafkaesque.events.topics import SOCIAL_CURSORS, SOCIAL_REJECTED
from kafkaesque.sources.local.connections import ServerFaults
from kafkaesque.sources.local.server import LocalServer
from kafkaesque.testing import Broker

TAGS = ("news", "kafka")
COUNT = 1200


async def follow_to_the_end(
    log: Log,
    server: LocalServer,
    network: str,
    count: int = COUNT,
    tags: tuple[str, ...] = TAGS,
    **settings: str,
) -> dict[str, int]:
    """Waits until every post of the timeline is in the log or was deleted."""
    posts = expected(network, count, tags)
    deleted = deleted_by_the_end(posts, count)
    async with running_connector(log, network, server.url, tags, **settings) as connector:
        counts = connector.counts

        async def complete() -> bool:
            return set(posts) - deleted <= set((await arrived(log)).posts)

        await until(lambda: connector.state.connected, "the connector did not connect", 60)
        await until(complete, "not all posts arrived", 60)
    return counts.as_dict()


async def check_complete(
    log: Log, network: str, count: int = COUNT, tags: tuple[str, ...] = TAGS
) -> None:
    """Nothing is lost or duplicated. Posts that were deleted before they could be read may be missing,
    except on Bluesky, whose replay includes them."""
    posts = expected(network, count, tags)
    deleted = deleted_by_the_end(posts, count)
    found = await arrived(log)
    absent = set(posts) - set(found.posts)
    assert absent <= (set() if network == "bluesky" else deleted)
    assert set(found.posts) <= set(posts)
    assert [name for name, n in (found.posts + found.deleted).items() if n > 2] == []
    assert set(found.posts.values()) == {1}
    assert set(found.deleted.values()) <= {1}
    assert set(found.deleted) <= deleted


@pytest.mark.parametrize(
    ("network", "transport"),
    [("bluesky", "websocket"), ("mastodon", "websocket"), ("mastodon", "sse"), ("x", "websocket")],
)
def test_every_post_arrives_once_although_the_server_disconnects_repeatedly(
    network: str, transport: str
) -> None:
    async def story() -> None:
        log = MemoryLog()
        # By SSE each hashtag is a connection, and the second comes in after the timeline's start.
        tags = TAGS if transport == "websocket" else TAGS[:1]
        async with local_server(COUNT, ServerFaults(disconnect_every=80)) as server:
            await follow_to_the_end(log, server, network, tags=tags, mastodon_transport=transport)
            assert server.counts.disconnected >= 1
        await check_complete(log, network, tags=tags)

    asyncio.run(story())


def test_gap_of_x_is_filled_by_search_without_enterprise_access() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(COUNT, rate=300) as server:
            async with running_connector(log, "x", server.url, TAGS, x_enterprise="false") as first:
                await until(lambda: first.counts.posts >= 50)
            # No connector runs for a while.
            reached = server.feed.head() + 200
            await until(lambda: server.feed.head() > reached)
            await follow_to_the_end(log, server, "x", x_enterprise="false")
            assert server.counts.pages > 0
        await check_complete(log, "x")

    asyncio.run(story())


def test_source_without_access_to_search_continues() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(COUNT, ServerFaults(search_status=403), rate=300) as server:
            async with running_connector(log, "x", server.url, TAGS, x_enterprise="false") as first:
                await until(lambda: first.counts.posts >= 20)
            async with running_connector(
                log, "x", server.url, TAGS, x_enterprise="false"
            ) as second:
                await until(lambda: second.counts.posts >= 20)
        assert server.counts.pages == 0

    asyncio.run(story())


def test_every_post_arrives_once_on_a_real_broker() -> None:
    async def story(log: Log) -> None:
        async with local_server(COUNT, ServerFaults(disconnect_every=300)) as server:
            await follow_to_the_end(log, server, "bluesky")
        await check_complete(log, "bluesky")

    with Broker() as broker:
        asyncio.run(story(KafkaLog(broker.bootstrap_servers)))


def test_only_deletions_of_our_posts_arrive() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(600) as server:
            posts = expected("bluesky", 600, TAGS)
            deleted = deleted_by_the_end(posts, 600)
            async with running_connector(log, "bluesky", server.url, TAGS) as connector:
                await until(lambda: connector.counts.deletions >= len(deleted))
            assert set((await arrived(log)).deleted) == deleted
            assert connector.counts.foreign > 0

    asyncio.run(story())


@pytest.mark.parametrize("transactions", ["never", "auto"])
def test_second_run_continues_where_the_first_stopped(transactions: str) -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(COUNT, rate=2000) as server:
            async with running_connector(
                log, "bluesky", server.url, TAGS, transactions=transactions
            ) as first:
                await until(lambda: first.counts.posts >= 50)
            await follow_to_the_end(log, server, "bluesky", transactions=transactions)
        await check_complete(log, "bluesky")

    asyncio.run(story())


def test_crash_between_posts_and_cursor_duplicates_nothing() -> None:
    """Without transactions, posts are written before their cursor. The cursor's write fails here, as
    with a kill in between."""

    class Cut(MemoryLog):
        async def append(self, placed, transaction=None):  # type: ignore[no-untyped-def]
            items = list(placed)
            if self.records("social.posts") and items[0][0].topic == SOCIAL_CURSORS.name:
                self.cuts += 1
                if self.cuts in (1, 3):
                    raise DeliveryFailed("cut between posts and cursor")
            return await super().append(items, transaction)

        cuts = 0

    async def story() -> None:
        log = Cut(transactions=False)
        async with local_server(600, rate=2000) as server:
            await follow_to_the_end(log, server, "bluesky", 600)
        assert log.cuts >= 3
        await check_complete(log, "bluesky", 600)

    asyncio.run(story())


def test_posts_and_cursor_are_atomic_with_transactions() -> None:
    class Watched(MemoryLog):
        topics: ClassVar[set[str]] = set()

        async def append(self, placed, transaction=None):  # type: ignore[no-untyped-def]
            items = list(placed)
            self.topics |= {place.topic for place, _ in items}
            assert transaction is not None or "social.posts" not in self.topics
            return await super().append(items, transaction)

        async def commit(self, transaction: MemoryTransaction) -> None:
            assert "social.posts" not in self.topics or SOCIAL_CURSORS.name in self.topics
            self.topics.clear()
            await super().commit(transaction)

    async def story() -> None:
        log = Watched()
        async with local_server(300) as server:
            await follow_to_the_end(log, server, "bluesky", 300)
        await check_complete(log, "bluesky", 300)

    asyncio.run(story())


def test_source_survives_an_unavailable_log_and_loses_nothing() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(600, rate=1000) as server:
            async with running_connector(log, "bluesky", server.url, TAGS) as connector:
                await until(lambda: connector.counts.posts > 20)
                log.failure = DeliveryFailed("the log is away")
                await until(lambda: connector.state.error is not None)
                log.failure = None
                await until(lambda: connector.state.passes > 1 and connector.state.connected)
            await follow_to_the_end(log, server, "bluesky", 600)
        await check_complete(log, "bluesky", 600)

    asyncio.run(story())


def test_second_process_of_the_same_name_fences_the_first() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with (
            local_server(100_000, rate=500) as server,
            running_connector(log, "bluesky", server.url, TAGS) as first,
        ):
            await until(lambda: first.counts.posts > 5)
            async with running_connector(log, "bluesky", server.url, TAGS) as second:
                await until(lambda: second.state.batches > 3)

    with pytest.raises(WriterFenced):
        asyncio.run(story())


def test_transactions_can_be_required() -> None:
    async def story() -> None:
        log = MemoryLog(transactions=False)
        async with local_server(10) as server:
            with pytest.raises(TransactionsUnsupported):
                async with running_connector(
                    log, "bluesky", server.url, TAGS, transactions="required"
                ) as connector:
                    await until(lambda: connector.state.passes > 0)

    asyncio.run(story())


@pytest.mark.parametrize("network", ["bluesky", "mastodon", "x"])
def test_malformed_and_oversized_frames_are_dead_letters_and_posts_still_arrive(
    network: str,
) -> None:
    async def story() -> None:
        log = MemoryLog()
        faults = ServerFaults(malformed_every=50, oversized_every=120, oversized_bytes=300_000)
        async with local_server(600, faults) as server:
            counts = await follow_to_the_end(log, server, network, 600, frame_max_bytes="100000")
        assert counts["rejected"] > 3
        assert len(log.records(SOCIAL_REJECTED.name)) > 3
        await check_complete(log, network, 600)

    asyncio.run(story())


@pytest.mark.parametrize("network", ["bluesky", "mastodon", "x"])
@pytest.mark.parametrize("status", [401, 429, 503])
def test_refused_connections_are_retried(network: str, status: int) -> None:
    async def story() -> None:
        log = MemoryLog()
        faults = ServerFaults(refuse_status=status, refuse_count=2)
        async with local_server(200, faults) as server:
            await follow_to_the_end(log, server, network, 200, backoff_scale="0.0001")
            assert server.counts.refused == 2
        await check_complete(log, network, 200)

    asyncio.run(story())


def test_silent_connection_is_replaced() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with (
            local_server(400, ServerFaults(stall_after=100)) as server,
            running_connector(log, "bluesky", server.url, TAGS, idle_timeout_ms="300") as connector,
        ):
            await until(lambda: connector.state.connections >= 2)
            server.faults.stall_after = 0
            await until(lambda: connector.counts.posts >= len(expected("bluesky", 400, TAGS)))
        await check_complete(log, "bluesky", 400)

    asyncio.run(story())


def test_server_that_closes_at_once_is_retried_with_backoff() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(100, ServerFaults(disconnect_every=1)) as server:
            server.counts.last_tick = -2
            async with running_connector(
                log, "bluesky", server.url, TAGS, backoff_scale="1.0"
            ) as connector:
                await until(lambda: connector.state.connections >= 3)
                assert server.counts.connections <= 4

    asyncio.run(story())


def test_wrong_token_is_refused_and_the_right_one_is_not() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with local_server(100, token="secret") as server:
            async with running_connector(log, "x", server.url, TAGS, token="guess") as connector:
                await until(lambda: server.counts.refused > 0)
            assert connector.counts.posts == 0
            async with running_connector(log, "x", server.url, TAGS, token="secret") as connector:
                await until(lambda: connector.counts.posts > 0)

    asyncio.run(story())


def test_cursor_advances_while_no_matching_post_arrives() -> None:
    async def story() -> None:
        log = MemoryLog()
        async with (
            local_server(300) as server,
            running_connector(log, "bluesky", server.url, ["nobodywritesthis"]) as connector,
        ):
            await until(lambda: connector.counts.unmatched >= 300)
        last = CURSORS.decode(log.records(SOCIAL_CURSORS.name)[-1].value or b"").body
        assert isinstance(last, SourceCursor)
        assert int(last.cursor) > 1_790_000_000_000_000
        assert (await arrived(log)).posts.total() == 0

    asyncio.run(story())
