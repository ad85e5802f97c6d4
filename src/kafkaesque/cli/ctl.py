"""`kafkaesque ctl`: kill, pause or restart processes of a running `kafkaesque up`."""

from __future__ import annotations

from pathlib import Path

import click

from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.cli.options import examples, json_option, running_data_option
from kafkaesque.cli.render import Screen
from kafkaesque.up.control_client import ActionRefused, act

_MEANINGS = {
    "kill": ("Kill a process (SIGKILL); `up` restarts it.", "broker-1"),
    "pause": ("Pause a process (SIGSTOP).", "gateway-0"),
    "resume": ("Resume a paused process (SIGCONT).", "gateway-0"),
    "restart": ("Stop a process (SIGTERM); `up` restarts it.", "chat-0"),
}


@click.group(
    epilog=examples(
        "kafkaesque status                           # lists the processes",
        "kafkaesque ctl kill broker-1",
        "kafkaesque ctl pause gateway-0 && kafkaesque ctl resume gateway-0",
        "kafkaesque ctl restart chat-0 --json",
    )
)
def ctl() -> None:
    """Kill, pause, resume or restart a process of a running `kafkaesque up`."""


def _command(action: str, text: str, example: str) -> click.Command:
    @click.command(action, help=text, epilog=examples(f"kafkaesque ctl {action} {example}"))
    @click.argument("name", metavar="PROCESS")
    @running_data_option
    @json_option
    def run(name: str, data: Path, screen: Screen) -> None:
        _act(data, name, action)
        screen.document({"process": name, "action": action},
                        lambda: screen.line(f"{name}: {action}"))  # fmt: skip

    return run


def _act(data: Path, name: str, action: str) -> None:
    try:
        act(data, name, action)
    except ActionRefused as error:
        raise CommandFailure(str(error), "`kafkaesque status` lists the processes") from None
    except (OSError, ValueError, KeyError):
        raise CannotConnect(
            f"no `kafkaesque up` runs with {data}", f"start it: `kafkaesque up --data {data}`"
        ) from None


for _action, (_text, _example) in _MEANINGS.items():
    ctl.add_command(_command(_action, _text, _example))
