from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import COMMANDS, cli, run


def test_help_names_every_present_command_and_the_exit_codes() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for name in ("topic", "produce", "consume", "group", "config", "doctor", "completion"):
        assert f"\n  {name} " in output
    assert "130 interrupted" in output


def test_a_command_whose_module_is_absent_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "topic", COMMANDS["topic"]._replace(module="kafkaesque.cli.gone"))
    output = CliRunner().invoke(cli, ["--help"]).output
    assert "\n  topic " not in output


def test_help_and_version_import_no_client_library_and_no_rich() -> None:
    program = (
        "import sys; from kafkaesque.cli.main import run; run(sys.argv[1:]); "
        "print([m for m in sys.modules if m.split('.')[0] in ('confluent_kafka', 'rich', 'uvloop')])"
    )
    for argument in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", program, argument], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics"]) == ExitCode.USAGE
    assert "Did you mean 'topic'?" in capsys.readouterr().err


def test_a_failure_shows_its_fix_and_gives_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "-b", "no-such-host.invalid:1"]) == ExitCode.CANNOT_CONNECT
    out, err = capsys.readouterr()
    assert out == ""
    assert "does not resolve" in err
    assert "fix:" in err


@pytest.mark.parametrize(
    "args",
    [
        ["topic", "alter", "x"],
        ["topic", "delete-records", "x"],
        ["consume", "x", "-f", "--to", "end"],
        ["consume", "x", "--format", "%y"],
        ["consume", "x", "--from", "soon"],
        ["consume", "x", "--group", "g", "--partition", "1"],
        ["produce", "x", "--idempotent", "--acks", "1"],
        ["produce", "x", "--key-separator", ""],
        ["group", "reset", "g", "--all-topics"],
        ["group", "reset", "g", "--to", "end", "--shift", "1", "--all-topics"],
        ["group", "reset", "g", "--to", "end"],
        ["config", "unset", "topic", "t", "a=b"],
        ["config", "describe", "cat", "t"],
    ],
)
def test_contradicting_options_are_usage_errors_before_any_connection(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == ExitCode.USAGE
    assert "Error:" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["topic", "group", "config"])
def test_every_subcommand_has_examples(name: str) -> None:
    group = cli.get_command(None, name)  # type: ignore[arg-type]
    for command in group.commands.values():  # type: ignore[union-attr]
        assert "Examples:" in (command.epilog or ""), f"{name} {command.name}"


@pytest.mark.parametrize("name", ["produce", "consume", "doctor", "completion"])
def test_every_command_has_examples(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert "Examples:" in (command.epilog or "")


def test_full_disk_of_standard_output_is_reported() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafkaesque.cli.main", "config", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.splitlines() == [
        "error: cannot write: the disk is full",
        "  fix: free some space, or write to another disk",
    ]
