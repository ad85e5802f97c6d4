"""`kafkaesque doctor`: checks for everything that commonly goes wrong, with the fix."""

from __future__ import annotations

from pathlib import Path

import click

from kafkaesque.cli.failures import ExitCode, usage
from kafkaesque.cli.options import address_option, examples, json_option
from kafkaesque.cli.render import Screen
from kafkaesque.cli.terminal_text import visible
from kafkaesque.client.wire.address import parse_bootstrap
from kafkaesque.service.finding import Finding
from kafkaesque.up.doctor import examine

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command(
    epilog=examples(
        "kafkaesque doctor",
        "kafkaesque doctor -b broker.example:9092 --data /var/lib/kafkaesque",
        "kafkaesque doctor --json | jq '.findings[] | select(.status != \"ok\")'",
    )
)
@address_option
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also check this data directory and its disk.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each broker.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also list the API versions of the broker.")
@json_option
def doctor(
    bootstrap_server: str, data: Path | None, timeout: float, verbose: bool, screen: Screen
) -> int:
    """Check a cluster and this machine, and show how to fix what is wrong.

    Checks addresses, listeners, API versions, advertised listeners, package versions, file limits, the
    clock, default ports and, with --data, the disk. Exits with 1 if a check fails. Connects in plaintext;
    it recognizes a TLS listener, but cannot examine it.
    """
    try:
        addresses = parse_bootstrap(bootstrap_server)
    except ValueError as error:
        raise usage(str(error)) from None
    findings = list(examine(addresses, data, timeout))
    counts = {status: sum(f.status == status for f in findings) for status in MARKS}
    screen.document(
        {**counts, "findings": [finding.row() for finding in findings]},
        lambda: show(screen, findings, counts, verbose),
    )
    return int(ExitCode.FAILED if counts["fail"] else ExitCode.OK)


def show(screen: Screen, findings: list[Finding], counts: dict[str, int], verbose: bool) -> None:
    width = max(len(finding.area) for finding in findings)
    for finding in findings:
        mark, colour = MARKS[finding.status]
        head = click.style(mark.ljust(4), fg=colour, bold=finding.status == "fail")
        area = click.style(finding.area.ljust(width), dim=True)
        screen.styled(f"{head}  {area}  {visible(finding.text)}")
        if finding.fix:
            screen.styled(
                f"{'':{width + 8}}{click.style('fix:', bold=True)} {visible(finding.fix)}"
            )
        if verbose and "apis" in finding.facts:
            _show_apis(screen, finding, width + 8)
    screen.line()
    summary = f"{counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failing"
    screen.styled(click.style(summary, bold=True))


def _show_apis(screen: Screen, finding: Finding, indent: int) -> None:
    """Names come from our own tables; an API that we do not support is shown by its number."""
    names = api_names()
    texts = [
        f"{names.get(int(key), f'API {key}')} {low}-{high}"
        for key, (low, high) in finding.facts["apis"].items()
    ]
    padding = " " * indent
    screen.line(click.wrap_text(", ".join(texts), 100, padding, padding))


def api_names() -> dict[int, str]:
    from kafkaesque.wire.api import ApiKey

    return {int(key): key.name.title().replace("_", "") for key in ApiKey}
