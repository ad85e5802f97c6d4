"""`kafkaesque top`: a live view of a cluster in the terminal."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import CannotConnect
from kafkaesque.cli.options import client_options, examples
from kafkaesque.cli.terminal_text import visible

if TYPE_CHECKING:
    from rich.console import Group

    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.cli.render import Screen
    from kafkaesque.console.cluster.sampler import Sampler
    from kafkaesque.console.rules.view import ConsoleClusterView

ROWS_DEFAULT = 15
_COLORS = {"good": "green", "info": "cyan", "warn": "yellow", "bad": "red", "unknown": "dim"}
_SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24


@click.command(
    epilog=examples(
        "kafkaesque top",
        "kafkaesque top --sort lag --rows 30",
        "kafkaesque top --once --json | jq '.groups[] | select(.status != \"ok\")'",
    )
)
@click.option("--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True,
              metavar="SECONDS", help="Refresh interval.")  # fmt: skip
@click.option("--rows", type=click.IntRange(1, 1000), default=ROWS_DEFAULT, show_default=True,
              help="Number of topics and groups to show.")  # fmt: skip
@click.option("--sort", type=click.Choice(["rate", "size", "name", "lag"]), default="rate",
              show_default=True, help="Sort order of topics.")  # fmt: skip
@click.option("--once", is_flag=True, help="Take two samples, print, and exit.")
@click.option("--count", type=click.IntRange(min=1), help="Exit after this many samples.")
@client_options()
def top(
    connection: ClusterConnection,
    screen: Screen,
    every: float,
    rows: int,
    sort: str,
    once: bool,
    count: int | None,
) -> None:
    """Watch brokers, topics, groups and events of any Kafka in the terminal. Ctrl-C exits."""
    samples = 2 if once or screen.as_json else count
    connection.reach()
    try:
        asyncio.run(_watch(connection, screen, every, rows, sort, samples))
    except KeyboardInterrupt:
        return


async def _watch(
    connection: ClusterConnection,
    screen: Screen,
    every: float,
    rows: int,
    sort: str,
    samples: int | None,
) -> None:
    from rich.console import Console
    from rich.live import Live

    from kafkaesque.console.cluster.sampler import Sampler

    links = connection.pool()
    sampler = Sampler(links, every)
    try:
        await sampler.sample()
        if sampler.view.error:
            raise CannotConnect(
                f"no answer from {connection.bootstrap}: {sampler.view.error}",
                connection.diagnosis_hint,
            )
        if samples is not None and (screen.as_json or samples == 2):
            await asyncio.sleep(min(every, 1.0))
            await sampler.sample()
            if screen.as_json:
                click.echo(json.dumps(_document(sampler.view)))
            else:
                Console().print(_render(sampler, rows, sort))
            return
        with Live(_render(sampler, rows, sort), screen=True, auto_refresh=False) as live:
            while samples is None or sampler.sample_count < samples:
                await asyncio.sleep(every)
                await sampler.sample()
                live.update(_render(sampler, rows, sort), refresh=True)
    finally:
        links.close()


def _document(view: ConsoleClusterView) -> dict[str, Any]:
    from kafkaesque.console.rules.health import health_of

    health = health_of(view)
    return {
        "health": health.level,
        "sentence": health.sentence,
        "brokers": [
            {"id": item.id, "address": item.address, "up": item.is_up, "leads": item.leads}
            for item in view.brokers.values()
        ],
        "topics": [
            {"name": item.name, "rate": item.rate, "records": item.records,
             "size_bytes": item.size_bytes, "partitions": len(item.partitions)}
            for item in view.topics.values()
        ],
        "groups": [
            {"name": item.name, "status": item.status.label, "members": item.members,
             "lag": item.lag, "lag_s": item.time_lag.seconds, "trend": item.trend.word}
            for item in view.groups.values()
        ],
    }  # fmt: skip


def _render(sampler: Sampler, rows: int, sort: str) -> Group:
    from rich.console import Group
    from rich.text import Text

    from kafkaesque.console.rules.formatting import short
    from kafkaesque.console.rules.health import health_of

    view, history = sampler.view, sampler.history
    health = health_of(view)
    up = sum(1 for broker in view.brokers.values() if broker.is_up)
    rate = history.latest("records_in")
    line = (
        f"brokers {up}/{len(view.brokers)}   controller {view.controller}"
        f"{f' term {view.quorum.epoch}' if view.quorum else ''}   topics {len(view.topics)}   "
        f"partitions {view.partition_count}   groups {len(view.groups)}   in {short(rate)}/s  "
    )
    return Group(
        Text(f"● {visible(health.sentence)}", style=f"bold {_COLORS[health.level]}"),
        Text(line + _spark(sampler, "records_in")),
        Text(""),
        _topics(sampler, rows, sort),
        Text(""),
        _groups(sampler, rows),
        Text(""),
        _events(sampler),
    )


def _spark(sampler: Sampler, name: str) -> str:
    points = sampler.history.points(name, 120, sampler.view.sampled_s)[-SPARK_WIDTH:]
    if not points:
        return ""
    most = max(point.value for point in points) or 1.0
    last = len(_SPARKS) - 1
    return "".join(_SPARKS[round(max(0.0, point.value) / most * last)] for point in points)


def _topics(sampler: Sampler, rows: int, sort: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    from kafkaesque.console.rules.formatting import count, short, size

    keys: dict[str, Any] = {
        "rate": lambda topic: (-(topic.rate or 0.0), topic.name),
        "size": lambda topic: (-(topic.size_bytes or 0), topic.name),
        "lag": lambda topic: (-max(topic.groups.values(), default=0), topic.name),
        "name": lambda topic: topic.name,
    }
    topics = [t for t in sampler.view.topics.values() if not t.name.startswith("__")]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("TOPIC", min_width=20, overflow="ellipsis", no_wrap=True)
    for name in ("RECORDS/S", "RECORDS", "SIZE", "PARTITIONS"):
        table.add_column(name, justify="right")
    table.add_column("LAST 2 MIN", min_width=SPARK_WIDTH)
    for topic in sorted(topics, key=keys[sort])[:rows]:
        style = "red" if topic.leaderless else "yellow" if topic.under_replicated else None
        table.add_row(
            Text(visible(topic.name)), short(topic.rate), count(topic.records), size(topic.size_bytes),
            str(len(topic.partitions)), _spark(sampler, f"topic/{topic.name}/rate"), style=style,
        )  # fmt: skip
    return table


def _groups(sampler: Sampler, rows: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    from kafkaesque.console.rules.formatting import count, duration

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("GROUP", min_width=20, overflow="ellipsis", no_wrap=True)
    table.add_column("STATUS")
    for name in ("MEMBERS", "LAG", "BEHIND", "CATCHES UP"):
        table.add_column(name, justify="right")
    table.add_column("LAG, 2 MIN", min_width=SPARK_WIDTH)
    groups = sorted(sampler.view.groups.values(), key=lambda g: (-g.status, -g.lag, g.name))
    for group in groups[:rows]:
        behind = group.time_lag
        pace = "" if not group.lag else "never" if group.catch_up_s is None else duration(group.catch_up_s)  # fmt: skip
        table.add_row(
            Text(visible(group.name)),
            Text(group.status.label, style=_COLORS[group.status.level]),
            count(group.members),
            f"{count(group.lag)} {group.trend.arrow}",
            f"{'' if behind.is_exact else '> '}{duration(behind.seconds)}",
            pace,
            _spark(sampler, f"group/{group.name}/lag"),
        )
    return table


def _events(sampler: Sampler) -> Any:
    from rich.text import Text

    from kafkaesque.console.rules.formatting import clock_time

    text = Text()
    for event in sampler.events.newest(5):
        text.append(f"{clock_time(event.at_s)} ", style="dim")
        text.append(f"{visible(event.change.text)}\n", style=_COLORS[event.change.level])
    return text
