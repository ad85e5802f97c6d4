"""A local server, a source connector and a log in one event loop, and the posts that must arrive."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from yarl import URL

from kafkaesque.client.ports import Log
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.social import POSTS, Post, PostDeleted
from kafkaesque.events.topics import SOCIAL_POSTS
from kafkaesque.sources.config import source_config
from kafkaesque.sources.connector import SourceConnector
from kafkaesque.sources.local.connections import ServerFaults
from kafkaesque.sources.local.feed import Feed
from kafkaesque.sources.local.rules.timeline import Timeline
from kafkaesque.sources.local.server import LocalServer
from kafkaesque.sources.networks import NETWORKS
from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.frame_processor import SourceIdentity
from kafkaesque.sources.rules.generator import SyntheticPost
from kafkaesque.sources.rules.hashtags import distinct
from kafkaesque.sources.streams.endpoint import Endpoint, new_session

SEED = 7
EPOCH_US = time.time_ns() // 1000
QUICK = {
    "backoff.scale": "0.02",
    "x.enterprise": "true",
    "batch.linger.ms": "5",
    "cursor.interval.ms": "50",
}


@asynccontextmanager
async def local_server(
    count: int, faults: ServerFaults | None = None, rate: float = 4000.0, token: str | None = None
) -> AsyncIterator[LocalServer]:
    server = LocalServer(Feed(Timeline(SEED, EPOCH_US, rate, count)), faults, token=token)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def running_connector(
    log: Log,
    network: str,
    url: str,
    tags: Iterable[str],
    token: str | None = None,
    **settings: str,
) -> AsyncIterator[SourceConnector]:
    """A running connector; on exit it is stopped, and its exception is raised."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    config = source_config({**QUICK, **named})
    async with new_session(token, config) as session:
        endpoint = Endpoint(URL(url), session, config, distinct(tags), "test")
        identity = SourceIdentity(network, f"{network}-test")
        connector = SourceConnector(log, NETWORKS[network], identity, endpoint)
        running = asyncio.create_task(connector.run())
        try:
            yield connector
        finally:
            connector.stop()
            await running


@dataclass(frozen=True)
class Arrived:
    """The posts and deletions in the log."""

    posts: Counter[str]
    deleted: Counter[str]


async def arrived(log: Log) -> Arrived:
    found = Arrived(Counter(), Counter())
    spans = await log.admin.spans(SOCIAL_POSTS.name)
    async for records in read_stretch(log, spans, wait_s=0.1):
        for record in records:
            body = POSTS.decode(record.value or b"").body
            if isinstance(body, Post):
                found.posts[body.id] += 1
            if isinstance(body, PostDeleted):
                found.deleted[body.id] += 1
    return found


def native_id(network: str, post: SyntheticPost) -> str:
    return {"bluesky": post.uri, "mastodon": str(post.status_id), "x": str(post.x_id)}[network]


def expected(network: str, count: int, tags: Iterable[str]) -> dict[str, SyntheticPost]:
    """The posts of the timeline that have one of `tags`, by their id."""
    wanted = set(distinct(tags))
    return {
        native_id(network, post): post
        for post in generator.posts(SEED, 0, count)
        if wanted.intersection(distinct(post.tags))
    }


def deleted_by_the_end(posts: dict[str, SyntheticPost], count: int) -> set[str]:
    return {
        name
        for name, post in posts.items()
        if post.deleted_after and post.number + post.deleted_after < count
    }
