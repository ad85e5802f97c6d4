"""The registry of networks: requirements, resume behaviour, parser and streams of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafkaesque.sources.reconnect import Stream
from kafkaesque.sources.rules import jetstream, mastodon, x
from kafkaesque.sources.rules.parsing import Parser
from kafkaesque.sources.streams.bluesky import JetstreamStream
from kafkaesque.sources.streams.endpoint import Endpoint
from kafkaesque.sources.streams.mastodon import MastodonStream
from kafkaesque.sources.streams.x import XComplianceStream, XStream


@dataclass(frozen=True, slots=True)
class SocialNetwork:
    """A social network that a source can read."""

    name: str
    wire: str
    live_url: str | None
    """None if there are many servers and the user must name one."""
    token_variable: str | None
    """Environment variable of the bearer token; None if no token is needed."""
    needs_tags: bool
    resume: str
    deletes: str
    parser: Parser
    streams: Callable[[Endpoint], Sequence[Stream]]


def _jetstream(endpoint: Endpoint) -> Sequence[Stream]:
    return [JetstreamStream(endpoint)]


def _mastodon(endpoint: Endpoint) -> Sequence[Stream]:
    if endpoint.config.mastodon_transport == "sse":
        return [MastodonStream(endpoint, [tag], f"tag:{tag}") for tag in endpoint.tags]
    return [MastodonStream(endpoint, endpoint.tags)]


def _x(endpoint: Endpoint) -> Sequence[Stream]:
    streams: list[Stream] = [XStream(endpoint)]
    if endpoint.config.x_enterprise:
        streams.append(XComplianceStream(endpoint))
    return streams


NETWORKS: Mapping[str, SocialNetwork] = {
    network.name: network
    for network in (
        SocialNetwork(
            name=jetstream.NETWORK,
            wire="Jetstream: WebSocket, JSON",
            live_url="https://jetstream2.us-east.bsky.network",
            token_variable=None,
            needs_tags=False,
            resume="cursor of microseconds, 36 h back",
            deletes="yes",
            parser=jetstream.parse,
            streams=_jetstream,
        ),
        SocialNetwork(
            name=mastodon.NETWORK,
            wire="streaming API: WebSocket or server-sent events",
            live_url=None,
            token_variable="KAFKAESQUE_MASTODON_TOKEN",  # noqa: S106 - the name of a variable
            needs_tags=True,
            resume="REST timeline from the last id",
            deletes="while connected",
            parser=mastodon.parse,
            streams=_mastodon,
        ),
        SocialNetwork(
            name=x.NETWORK,
            wire="filtered stream v2: lines of JSON over HTTPS",
            live_url="https://api.x.com",
            token_variable="KAFKAESQUE_X_TOKEN",  # noqa: S106 - the name of a variable
            needs_tags=True,
            resume="recent search of 7 days; backfill and recovery with Enterprise access",
            deletes="compliance stream (Enterprise access)",
            parser=x.parse,
            streams=_x,
        ),
    )
}
