"""Failures of commands: a message, a fix and an exit code. Imports no client library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import IO, Any

import click

from kafkaesque.admin import errors
from kafkaesque.cli.terminal_text import LINES, visible

START_OR_SELECT = (
    "start a broker with `kafkaesque broker`, or set another address with --bootstrap-server "
    "(or KAFKAESQUE_BOOTSTRAP); `kafkaesque doctor` shows details"
)


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on; `kafkaesque --help` lists them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANNOT_CONNECT = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


class CommandFailure(click.ClickException):
    """The operation failed. `message` says what happened, `fix` what to do."""

    exit_code = int(ExitCode.FAILED)

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix

    def show(self, file: IO[Any] | None = None) -> None:
        stream = file or sys.stderr
        label = click.style("error:", fg="red", bold=True)
        click.echo(f"{label} {visible(self.message, LINES)}", file=stream, color=self.show_color)
        if self.fix:
            text = f"  {click.style('fix:', bold=True)} {visible(self.fix, LINES)}"
            click.echo(text, file=stream, color=self.show_color)


class CannotConnect(CommandFailure):
    """No broker could be reached, or none answered in time."""

    exit_code = int(ExitCode.CANNOT_CONNECT)


class TargetNotFound(CommandFailure):
    """The topic, group, broker or other named thing does not exist."""

    exit_code = int(ExitCode.NOT_FOUND)


def failure_of(error: errors.AdminError) -> CommandFailure:
    """The failure of the command for an error of `kafkaesque.admin`, with its exit code."""
    if isinstance(error, errors.ClusterUnreachable):
        return CannotConnect(str(error), error.fix or START_OR_SELECT)
    if isinstance(error, errors.BrokerUnavailable):
        cause = error.fix or "`kafkaesque doctor` shows why"
        return CannotConnect(str(error), f"{cause}; --timeout allows more time")
    if isinstance(error, errors.ResourceNotFound):
        return TargetNotFound(str(error), error.fix)
    return CommandFailure(str(error), error.fix)


def raise_failures(failed: Sequence[errors.AdminError]) -> None:
    """Show all failures; the last one is raised and decides the exit code."""
    for error in failed[:-1]:
        failure_of(error).show()
    if failed:
        raise failure_of(failed[-1])


def usage(message: str) -> click.UsageError:
    """A usage error, shown with the usage line of the current command."""
    return click.UsageError(message, ctx=click.get_current_context(silent=True))
