"""`kafkaesque status`: the processes of a running `kafkaesque up`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.options import examples, running_data_option
from kafkaesque.cli.render import Column, Screen
from kafkaesque.up.control_client import running_processes

_COLUMNS = (
    Column("name", "process"),
    Column("state", "state", "state"),
    Column("pid", "pid"),
    Column("restarts", "restarts", "count"),
    Column("memory_bytes", "memory", "bytes"),
    Column("addresses", "addresses", style="dim"),
)


@click.command(
    epilog=examples(
        "kafkaesque status",
        "kafkaesque status --data ./data",
        "kafkaesque status --json | jq .memory_bytes            # total",
        "kafkaesque status --json | jq '.processes[] | select(.state != \"running\")'",
    )
)
@running_data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(data: Path, as_json: bool) -> None:
    """Show what `kafkaesque up` runs with this data directory.

    Exits with 1 if nothing runs there, or if a process is not running.
    """
    processes = running_processes(data)
    if processes is None:
        click.echo(
            f"no `kafkaesque up` runs with {data}; start it: `kafkaesque up --data {data}`",
            err=True,
        )
        sys.exit(int(ExitCode.FAILED))
    screen = Screen(as_json)
    rows = [{**process, "addresses": _addresses(process["facts"])} for process in processes]
    total_bytes = sum(process["memory_bytes"] for process in processes)
    rows.append({"name": "total", "memory_bytes": total_bytes})
    content = {"processes": processes, "memory_bytes": total_bytes}
    screen.document(content, lambda: screen.table(_COLUMNS, rows))
    is_well = all(process["state"] == "running" for process in processes)
    sys.exit(int(ExitCode.OK if is_well else ExitCode.FAILED))


def _addresses(facts: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items() if ":" in value)
