from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_includes_an_install_hint(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="kafkaesque")
    assert result.exit_code == ExitCode.OK
    assert "_KAFKAESQUE_COMPLETE" in result.output
    assert f"# To install: kafkaesque completion {shell}" in result.output


def test_json_has_the_same_script() -> None:
    words = ["completion", "fish"]
    plain = CliRunner().invoke(cli, words, prog_name="kafkaesque").output
    result = CliRunner().invoke(cli, [*words, "--json"], prog_name="kafkaesque")
    document = json.loads(result.output)
    assert document["shell"] == "fish"
    assert document["script"] + "\n" == plain
    assert document["install"].startswith("kafkaesque completion fish > ")


def test_zsh_keeps_its_marker_in_the_first_line() -> None:
    output = CliRunner().invoke(cli, ["completion", "zsh"], prog_name="kafkaesque").output
    assert output.startswith("#compdef kafkaesque\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing: apt install bash")
def test_bash_accepts_its_script() -> None:
    output = CliRunner().invoke(cli, ["completion", "bash"], prog_name="kafkaesque").output
    subprocess.run(["bash", "-n"], input=output, text=True, check=True)
