"""`kafkaesque ctl`: break processes of a running `kafkaesque up`, as the console's page Faults does."""

from __future__ import annotations

from pathlib import Path

import click

from kafkaesque.cli.broker_services import data_option
from kafkaesque.cli.control_client import Refused, act
from kafkaesque.cli.failures import CannotConnect, Failure
from kafkaesque.cli.options import examples, json_option
from kafkaesque.cli.render import Screen

_MEANINGS = {
    "kill": ("Kill it with signal 9; it is started again.", "broker-1"),
    "pause": ("Stop it where it stands (SIGSTOP): it is there and does nothing.", "gateway-0"),
    "resume": ("Let one that is paused go on.", "gateway-0"),
    "restart": ("Ask it to stop in order; it is started again.", "chat-0"),
}


@click.group(
    epilog=examples(
        "kafkaesque status                           # their names",
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
    @data_option
    @json_option
    def run(name: str, data: Path, screen: Screen) -> None:
        _act(data, name, action)
        screen.document({"process": name, "action": action},
                        lambda: screen.line(f"{name}: {action}"))  # fmt: skip

    return run


def _act(data: Path, name: str, action: str) -> None:
    try:
        act(data, name, action)
    except Refused as error:
        raise Failure(str(error)) from None
    except (OSError, ValueError, KeyError):
        raise CannotConnect(
            f"nothing runs with {data}", f"`kafkaesque up --data {data}` starts it"
        ) from None


for _action, (_text, _example) in _MEANINGS.items():
    ctl.add_command(_command(_action, _text, _example))
