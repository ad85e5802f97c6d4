"""`kafkaesque bench`: benchmarks of our broker against a minimal server and Apache Kafka."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from kafkaesque.cli.failures import CommandFailure
from kafkaesque.lab.bench.catalog import CATALOG, run
from kafkaesque.lab.bench.peers import PeerFailed, is_checkout, peer_label
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions
from kafkaesque.lab.harness.proc import raise_open_file_limit

ROUNDS_DEFAULT = 3
RESULTS = Path("benchmarks/results")
"""Default directory of the reports of `bench all`, relative to the current directory."""

ALL_PEERS = tuple(dict.fromkeys(peer for entry in CATALOG.values() for peer in entry.peers))

EPILOG = """\b
Examples:
  kafkaesque bench list
  kafkaesque bench latency --quick
  kafkaesque bench produce --peers ours,floor --rounds 5
  kafkaesque bench produce --peers ours,../kafkaesque-before
  kafkaesque bench recover-all --size-mib 4096
  kafkaesque bench all

Peers alternate in one run with the same client and the same durability; ratios are computed per
round. `floor` needs a source checkout, `kafka` needs Java and Maven. A peer with a slash is the path
of a checkout of another version (`make compile` there first), which shows what a change costs in the
benchmarks with several peers. `replicated` and the benchmarks of
partitions and failures run three brokers each.
"""


def _peer_names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    unknown = [name for name in names if name not in ALL_PEERS and not is_checkout(name)]
    if unknown:
        raise click.BadParameter(
            f"'{unknown[0]}' is not one of {', '.join(ALL_PEERS)}, nor the path of a checkout"
        )
    labels = [peer_label(name) for name in names]
    for name, label in zip(names, labels, strict=True):
        if labels.count(label) > 1 or (is_checkout(name) and label in ALL_PEERS):
            raise click.BadParameter(
                f"two peers would be called '{label}'; rename the directory of the checkout"
            )
    return names


@click.command(epilog=EPILOG)
@click.argument("name", type=click.Choice(["list", "all", *CATALOG]), metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
@click.option("--peers", callback=_peer_names, help="Comma-separated peers from `bench list`, "
              "or paths of source checkouts.")  # fmt: skip
@click.option("--rounds", default=ROUNDS_DEFAULT, show_default=True, type=click.IntRange(1, 100),
              help="Rounds; the peers alternate in each.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Small runs of less than a minute.")
@click.option(
    "--loop", default="uvloop", show_default=True, help="Event loop of the minimal server `floor`."
)
@click.option(
    "--size-mib",
    type=click.IntRange(1),
    help="Data on each broker for recover-all and wiped-replica.  [default: 1024]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Parent of the servers' temporary directory, which is removed at the end.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write NAME.json and NAME.md into this directory (all: benchmarks/results).",
)
def bench(
    name: str,
    as_json: bool,
    peers: tuple[str, ...],
    rounds: int,
    quick: bool,
    loop: str,
    size_mib: int | None,
    data: Path | None,
    save: Path | None,
) -> None:
    """Benchmark our broker against others, in alternating rounds.

    NAME is a benchmark of `bench list`, all, or list.
    """
    if name == "list":
        _list(as_json)
        return
    raise_open_file_limit()
    # Handle SIGTERM like Ctrl-C: the default would leave the servers under test running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if save is None and name == "all":
        save = RESULTS
    answers: dict[str, object] = {}
    failures: list[str] = []
    for one in CATALOG if name == "all" else [name]:
        try:
            options = BenchmarkOptions(
                peers=peers or CATALOG[one].peers,
                rounds=rounds,
                quick=quick,
                directory=Path(tempfile.mkdtemp(prefix="kafkaesque-bench-", dir=data)),
                loop=loop,
                size_mib=size_mib or 0,
                say=lambda text: click.echo(text, err=True),
            )
            report = _run(one, options)
        except (LoadFailed, PeerFailed) as error:
            # Continue with the other benchmarks.
            failures.append(f"{one}: {error}")
            click.echo(f"failed: {failures[-1]}", err=True)
            continue
        answers[one] = report.as_json()
        _show(report, as_json)
        if save is not None:
            _save(report, save)
    if as_json:
        click.echo(json.dumps(answers if name == "all" else answers.get(name)))
    if failures:
        raise CommandFailure(
            "; ".join(failures), "`kafkaesque bench list` says what each peer needs"
        )


def _run(name: str, options: BenchmarkOptions) -> BenchmarkReport:
    try:
        return run(name, options)
    finally:
        shutil.rmtree(options.directory, ignore_errors=True)


def _list(as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({name: entry.purpose for name, entry in CATALOG.items()}))
        return
    for name, entry in CATALOG.items():
        click.echo(f"{name:<19}{entry.purpose} ({', '.join(entry.peers)})")


def _show(report: BenchmarkReport, as_json: bool) -> None:
    """Print tables for people; with --json on standard error."""
    from rich.console import Console

    from kafkaesque.lab.bench.render import to_console

    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(stderr=as_json, width=int(os.environ.get("COLUMNS", "140")))
    to_console(report, console)
    sys.stdout.flush()


def _save(report: BenchmarkReport, directory: Path) -> None:
    from kafkaesque.lab.bench.render import to_markdown

    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{report.name}.json").write_text(json.dumps(report.as_json(), indent=2) + "\n")
    (directory / f"{report.name}.md").write_text(to_markdown(report))
