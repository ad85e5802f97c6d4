"""`kafkaesque source`: copies posts of social networks into the log; serves synthetic posts."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.options import (
    client_options,
    examples,
    json_option,
    log_level_option,
    read_pair,
)
from kafkaesque.cli.server_settings import read_service_settings, show_settings

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.cli.render import Screen
    from kafkaesque.sources.config import SourceConfig
    from kafkaesque.sources.local.connections import ServerFaults
    from kafkaesque.sources.networks import SocialNetwork

NETWORK_NAMES = ("bluesky", "mastodon", "x")
DATA_DEFAULT = Path("kafkaesque-data")


@click.group()
def source() -> None:
    """Follow hashtags on Bluesky, Mastodon or X, and write the posts to the log.

    Without --live nothing leaves this machine: `run` starts a server of synthetic posts with the
    network's own protocol. See docs/SOURCES.md for the guarantees.
    """
    if importlib.util.find_spec("aiohttp") is None:
        raise CommandFailure(
            "the sources need aiohttp", "pip install 'kafkaesque-platform[sources]'"
        )


@source.command(
    "list",
    epilog=examples("kafkaesque source list", "kafkaesque source list --settings --json"),
)
@click.option("--settings", is_flag=True, help="List the settings of --set instead.")
@json_option
def list_networks(settings: bool, screen: Screen) -> None:
    """List the networks, what each needs and how it resumes; or all settings."""
    from kafkaesque.cli.render import Column
    from kafkaesque.sources.config import SOURCE_SETTINGS
    from kafkaesque.sources.networks import NETWORKS

    if settings:
        show_settings(SOURCE_SETTINGS, screen)
        return
    rows = [
        {
            "name": network.name,
            "wire": network.wire,
            "token": network.token_variable or "none needed",
            "resume": network.resume,
            "deletes": network.deletes,
        }
        for network in NETWORKS.values()
    ]
    columns = [Column(name, name) for name in rows[0]]
    screen.document(rows, lambda: screen.table(columns, rows))


@source.command(
    epilog=examples(
        "kafkaesque source run                              # synthetic posts, all hashtags",
        "kafkaesque source run --tag kafka --tag raft --rate 200",
        "kafkaesque source run bluesky --live --tag caturday",
        "KAFKAESQUE_MASTODON_TOKEN=... kafkaesque source run mastodon --live \\",
        "    --url https://mastodon.social --tag caturday",
        "kafkaesque source run x --url http://127.0.0.1:8090 --tag kafka --set x.enterprise=true",
    )
)
@click.argument("network", type=click.Choice(NETWORK_NAMES), default="bluesky")
@click.option("--tag", "tags", multiple=True, help="Hashtag to follow; may be repeated.  "
              "[default: every post, where the network allows it]")  # fmt: skip
@click.option("--live", is_flag=True, help="Connect to the real network over the internet.")
@click.option("--url", help="URL of another server with the network's protocol (http or https).")
@click.option(
    "--name", help="Name of this source, the key of its cursor.  [default: from network and server]"
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Stop after the batch that reaches this many posts."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Seed of the synthetic posts.  [default: random, stored in --data]",
)
@click.option("--rate", type=click.FloatRange(min=0.1), default=50.0, show_default=True,
              help="Synthetic posts per second.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              help="Directory of source.json and of the synthetic timeline.  "
              "[default: kafkaesque-data/source-NETWORK]")  # fmt: skip
@click.option("--http-listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
              help="Address of /metrics, /status, /healthz and /readyz.")  # fmt: skip
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Any setting of `source list --settings`; may be repeated.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@log_level_option()
@client_options()
def run(connection: ClusterConnection, screen: Screen, network: str, **options: Any) -> None:
    """Follow hashtags until Ctrl-C or SIGTERM.

    Prints one line `ready ...` when it is connected to the log and follows the network.
    """
    from kafkaesque.cli.service_process import host_port, run_service
    from kafkaesque.service.logs import set_up_logs
    from kafkaesque.sources.networks import NETWORKS
    from kafkaesque.sources.process import SourceOptions, serve_source

    set_up_logs("text", options.pop("log_level"))
    chosen = NETWORKS[network]
    live, url = options.pop("live"), options["url"]
    local = not live and url is None
    tags = _tags(chosen, options.pop("tags"), local)
    defaults = {"x.enterprise": "true", "backoff.scale": "0.1"} if local else {}
    config = read_config(options.pop("assignments"), defaults)
    if live and url is None:
        if chosen.live_url is None:
            raise usage(f"{network} has many servers: choose one with --url.")
        options["url"] = chosen.live_url
    token = os.environ.get(chosen.token_variable) if chosen.token_variable else None
    if live and chosen.token_variable and not token:
        raise usage(f"{network} requires a token: set {chosen.token_variable}.")
    connection.reach()
    data = options.pop("data") or DATA_DEFAULT / f"source-{network}"
    url = options.pop("url")
    wanted = SourceOptions(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        network=chosen,
        tags=tags,
        token=token,
        config=config,
        data=data,
        url=None if url is None else _checked_url(url),
        http_listen=host_port(options.pop("http_listen")),
        **options,
    )
    summary = run_service(serve_source(wanted))
    text = (
        f"stopped after {summary['posts']} posts, {summary['duplicates']} duplicates dropped, "
        f"{summary['deletions']} deletions"
    )
    click.echo(json.dumps(summary) if screen.as_json else text)


@source.command(
    epilog=examples(
        "kafkaesque source serve --listen 127.0.0.1:8090 --rate 500",
        "kafkaesque source serve --seed 7 --count 10000 --fault disconnect_every=1000",
        "curl -X POST http://127.0.0.1:8090/local/disconnect",
    )
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
              help="Address to serve; port 0 picks a free one.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=7, show_default=True,
              help="Seed of the posts; the same seed gives the same posts.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0.1), default=50.0, show_default=True,
              help="Posts per second.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="End the timeline after this many posts.")
@click.option("--token", envvar="KAFKAESQUE_LOCAL_TOKEN", help="Require this bearer token.")
@click.option("--fault", "faults", multiple=True, metavar="NAME=N",
              help="Inject a fault: disconnect_every, malformed_every, oversized_every, stall_after, refuse_status, "
              "refuse_count, search_status; may be repeated.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              help="Directory of server.json and of the timeline, which then continues after a restart.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@json_option
def serve(screen: Screen, **options: Any) -> None:
    """Serve synthetic posts with the protocols of Jetstream, Mastodon and X, on one port.

    The timeline starts when the first client connects. Hashtags follow Zipf's law; there are bursts,
    late and duplicate posts, and deletions.
    """
    from kafkaesque.cli.service_process import host_port, run_service
    from kafkaesque.sources.process import ServerOptions, serve_posts

    faults = read_faults(options.pop("faults"))
    listen = host_port(options.pop("listen"))
    summary = run_service(serve_posts(ServerOptions(listen=listen, faults=faults, **options)))
    if screen.as_json:
        click.echo(json.dumps(summary))


def read_faults(assignments: tuple[str, ...]) -> ServerFaults:
    from kafkaesque.sources.local.connections import ServerFaults

    known = {item.name for item in fields(ServerFaults)}
    values = {}
    for text in assignments:
        name, value = read_pair(text, "NAME=N")
        if name not in known or not value.isdecimal():
            raise usage(f"'{text}' is not a fault; the faults are {', '.join(sorted(known))}.")
        values[name] = int(value)
    return ServerFaults(**values)


def _checked_url(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise usage(f"'{text}' is not a URL: write https://HOST, also for WebSockets.")
    return text


def read_config(assignments: tuple[str, ...], defaults: dict[str, str]) -> SourceConfig:
    """The settings of --set over `defaults`."""
    from kafkaesque.sources.config import SourceConfig

    return read_service_settings(
        SourceConfig, assignments, listing="`source list --settings`", defaults=defaults
    )


def _tags(network: SocialNetwork, given: tuple[str, ...], local: bool) -> tuple[str, ...]:
    from kafkaesque.sources.rules.generator import TAGS
    from kafkaesque.sources.rules.hashtags import distinct, normalise

    for tag in given:
        if not normalise(tag):
            raise usage(f"'{tag}' is not a hashtag: write one word.")
    if given or not network.needs_tags:
        return distinct(given)
    if local:
        return distinct(TAGS)
    raise usage(f"{network.name} requires hashtags: use --tag at least once.")
