"""The entry point `kafkaesque`: a group that imports a command only when it runs.

Starting `kafkaesque broker` must not import a client library, rich, or another command's module, so
the one-line helps of all commands are written here.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkaesque.cli.failures import CommandFailure, ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "kafkaesque"


class Lazy(NamedTuple):
    """A command's module and its short help."""

    section: str
    module: str
    short_help: str


COMMANDS: dict[str, Lazy] = {
    "up": Lazy("Run", "kafkaesque.cli.up", "Start everything on this machine; Ctrl-C stops it."),
    "status": Lazy("Run", "kafkaesque.cli.status", "Show the processes of a running `up`."),
    "ctl": Lazy("Run", "kafkaesque.cli.ctl", "Kill, pause or restart a process of `up`."),
    "broker": Lazy("Run", "kafkaesque.cli.broker", "Run one broker."),
    "cluster": Lazy("Run", "kafkaesque.cli.cluster", "Run several brokers on this machine."),
    "source": Lazy("Run", "kafkaesque.cli.source", "Copy posts of social networks into a topic."),
    "gateway": Lazy(
        "Run", "kafkaesque.cli.gateway", "Run a gateway for TCP and WebSocket clients."
    ),
    "pipeline": Lazy("Run", "kafkaesque.cli.pipeline", "Run Spark queries over topics."),
    "chat": Lazy("Run", "kafkaesque.cli.chat", "Run chat back ends; chat in the terminal."),
    "tasks": Lazy(
        "Run", "kafkaesque.cli.tasks", "Run tasks and timers from the log; manage dead letters."
    ),
    "console": Lazy("Run", "kafkaesque.cli.console", "Run the web console of a cluster."),
    "topic": Lazy(
        "Operate", "kafkaesque.cli.topic", "Create, list, describe, alter and delete topics."
    ),
    "produce": Lazy(
        "Operate", "kafkaesque.cli.produce", "Write records from standard input or files."
    ),
    "consume": Lazy("Operate", "kafkaesque.cli.consume", "Read records to standard output."),
    "group": Lazy(
        "Operate", "kafkaesque.cli.group", "List consumer groups, show lag, reset offsets."
    ),
    "transaction": Lazy(
        "Operate", "kafkaesque.cli.transaction", "List and show transactions; abort hanging ones."
    ),
    "config": Lazy(
        "Operate", "kafkaesque.cli.config", "Show and change topic and broker settings."
    ),
    "broker-admin": Lazy(
        "Operate",
        "kafkaesque.cli.broker_admin",
        "Show brokers and quorum, elect leaders, reassign partitions.",
    ),
    "coord": Lazy("Operate", "kafkaesque.cli.coord", "Read and change the coordination tree."),
    "top": Lazy("Explain", "kafkaesque.cli.top", "Watch a cluster in the terminal."),
    "show": Lazy(
        "Explain", "kafkaesque.cli.show", "Show trends, gateways and events of the console."
    ),
    "doctor": Lazy(
        "Explain", "kafkaesque.cli.doctor", "Check for common problems and show the fix."
    ),
    "compat": Lazy(
        "Explain", "kafkaesque.cli.compat", "Check whether a cluster can move to another Kafka."
    ),
    "bench": Lazy("Explain", "kafkaesque.cli.bench", "Benchmark our broker against others."),
    "fault": Lazy(
        "Explain", "kafkaesque.cli.fault", "Inject faults under load and check the guarantees."
    ),
    "sim": Lazy("Explain", "kafkaesque.cli.sim", "Simulate clusters under faults, from seeds."),
    "completion": Lazy("Explain", "kafkaesque.cli.completion", "Print a shell completion script."),
}

EPILOG = """\b
Exit codes:
  0 done   1 the operation failed   2 wrong usage   3 cannot connect
  4 no such topic, group or broker   130 interrupted

\b
Environment:
  KAFKAESQUE_BOOTSTRAP   default of --bootstrap-server

Every command has examples: kafkaesque COMMAND --help
"""


class LazyGroup(click.Group):
    """Imports the module of a command when it runs; commands without a module are not listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, lazy in COMMANDS.items() if importlib.util.find_spec(lazy.module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None or importlib.util.find_spec(lazy.module) is None:
            return None
        command = getattr(importlib.import_module(lazy.module), cmd_name.replace("-", "_"))
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"There is no command '{name}'.{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names without importing the modules, so that completion is instant."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=COMMANDS[name].short_help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        try:
            outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader closed the pipe (`| head`): not a failure.
            _discard_output()
            ctx.exit(int(ExitCode.OK))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _discard_output()
            where = f" to {error.filename}" if error.filename else ""
            message = f"cannot write{where}: the disk is full"
            raise CommandFailure(message, "free some space, or write to another disk") from None
        return outcome

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        present = self.list_commands(ctx)
        width = max(len(name) for name in present)
        for section in dict.fromkeys(COMMANDS[name].section for name in present):
            rows = [
                (name.ljust(width), COMMANDS[name].short_help)
                for name in present
                if COMMANDS[name].section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


def _discard_output() -> None:
    """Redirect standard output to /dev/null: the interpreter's final flush would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"{PROGRAM} {version('kafkaesque-platform')}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """A Kafka-compatible event log, with services around it, in one pip install.

    `kafkaesque up` starts everything on this machine. The commands under Operate work with any Kafka,
    including Apache Kafka.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors that a user can cause are printed."""
    try:
        outcome = cli.main(
            args=None if args is None else list(args),
            prog_name=PROGRAM,
            standalone_mode=False,
            # https://no-color.org; None lets the terminal decide.
            color=False if os.environ.get("NO_COLOR") else None,
        )
    except click.Abort:
        click.echo("interrupted", err=True)
        return int(ExitCode.INTERRUPTED)
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    return outcome if isinstance(outcome, int) else int(ExitCode.OK)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
