"""A report for people: tables on a terminal, or the same tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from kafkaesque.lab.bench.figures import GoalComparison, Summary
from kafkaesque.lab.bench.report import BenchmarkReport, Case, figure_names


def number(value: float) -> str:
    """Three significant digits at least, thousands grouped, never an exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 0.001 or size == 0 else f"{value:.6f}"


def spread(summary: Summary) -> str:
    """The median, and the range if the values differ."""
    if len(summary.values) == 1:
        return number(summary.median)
    return f"{number(summary.median)}  [{number(summary.low)} .. {number(summary.high)}]"


def verdict(comparison: GoalComparison) -> str:
    if comparison.met is None:
        return ""
    return "met" if comparison.met else "NOT met"


def figure_rows(case: Case) -> list[list[str]]:
    """One row per figure, one column per peer."""
    by_peer = case.summaries()
    peers = case.peers
    return [
        [figure, *(spread(by_peer[p][figure]) if figure in by_peer[p] else "" for p in peers)]
        for figure in figure_names([case])
    ]


def comparison_rows(comparisons: Iterable[GoalComparison]) -> list[list[str]]:
    return [
        [one.case, one.what, spread(one.summary), str(one.goal or ""), verdict(one)]
        for one in comparisons
    ]


COMPARISON_TITLES = ("case", "what", "value", "goal", "")


def to_console(report: BenchmarkReport, console: Console) -> None:
    console.print(f"[bold]{report.name}[/bold]  {_facts(report.settings)}", highlight=False)
    console.print(f"machine: {_facts(report.machine)}", highlight=False)
    for peer, described in report.peers.items():
        console.print(f"{peer}: {described}", highlight=False)
    for case in report.cases:
        console.print(_table(case.title, ["figure", *case.peers], figure_rows(case)))
    if report.comparisons:
        rows = comparison_rows(report.comparisons)
        console.print(_table("goals (for information)", COMPARISON_TITLES, rows))
    for note in report.notes:
        console.print(f"note: {note}", highlight=False)


def to_markdown(report: BenchmarkReport) -> str:
    lines = [f"### {report.name}", "", f"Settings: {_facts(report.settings)}.", ""]
    for case in report.cases:
        lines += [f"**{case.title}**", ""]
        lines += [*_markdown(["figure", *case.peers], figure_rows(case)), ""]
    if report.comparisons:
        lines += [*_markdown(COMPARISON_TITLES, comparison_rows(report.comparisons)), ""]
    lines += [f"- {note}" for note in report.notes]
    return "\n".join(lines).rstrip() + "\n"


def _facts(facts: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())


def _table(title: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(titles):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return head + ["| " + " | ".join(row) + " |" for row in rows]
