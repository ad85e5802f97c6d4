"""The other guides: their tests pass, their commands and options exist, their copies are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.docs.snippets import GUIDES, ROOT, only, snippets

from kafkaesque.cli import main
from kafkaesque.testing import Broker

BIN = Path(sys.executable).parent
OUR_COMMAND = re.compile(r"^(?:\$ )?(kafkaesque [^#|\n]*)", re.MULTILINE)
DOCUMENTS = [*sorted(GUIDES.glob("*.md")), ROOT / "README.md"]


def bash(script: str, directory: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.story
@pytest.mark.timeout(300)
def test_tests_of_the_pytest_guide_pass_as_written(tmp_path: Path) -> None:
    texts = [item.text for item in snippets(GUIDES / "pytest.md") if item.language == "python"]
    for number, text in enumerate(texts):
        (tmp_path / f"test_snippet_{number}.py").write_text(text)
    count = sum(text.count("def test_") for text in texts)
    assert f"{count} passed" in bash("python -W error -m pytest -q", tmp_path)


@pytest.mark.story
@pytest.mark.timeout(300)
def test_topic_is_copied_from_cluster_to_cluster_with_keys_and_headers(tmp_path: Path) -> None:
    command = only(GUIDES / "move-to-kafka.md", "bash").text
    with Broker() as source, Broker() as target:
        addresses = {"SOURCE": source.bootstrap_servers, "TARGET": target.bootstrap_servers}
        bash("echo 'a:1' | kafkaesque produce orders -b $SOURCE -K : -H h=x", tmp_path, **addresses)
        bash(command, tmp_path, **addresses)
        read = "kafkaesque consume orders --headers --key -b $TARGET"
        assert bash(read, tmp_path, **addresses).split() == ["h=x", "a", "1"]


@pytest.mark.story
@pytest.mark.timeout(300)
def test_topic_is_kept_as_a_file_and_written_again(tmp_path: Path) -> None:
    script = only(GUIDES / "operate.md", "bash").text
    with Broker() as broker:
        where = {"KAFKAESQUE_BOOTSTRAP": broker.bootstrap_servers}
        bash("printf 'a:1\\nb:2\\n' | kafkaesque produce orders -K :", tmp_path, **where)
        bash(script, tmp_path, **where)
        read = bash("kafkaesque consume orders-again --key | sort", tmp_path, **where)
    assert read.split() == ["a", "1", "b", "2"]


def commands(document: Path) -> list[str]:
    fenced = "\n".join(
        item.text.replace("\\\n", " ")
        for item in snippets(document)
        if item.language in ("console", "sh", "bash", "")
    )
    return [match.strip() for match in OUR_COMMAND.findall(fenced)]


COMMANDS = sorted({command for document in DOCUMENTS for command in commands(document)})


def help_of(words: list[str]) -> str:
    """Help of the command that these words begin with; the words after its name are arguments."""
    command: click.Command = main.cli
    context = click.Context(command, info_name="kafkaesque")
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            break
        command, context = found, click.Context(found, info_name=word, parent=context)
    return command.get_help(context)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_a_guide_has_the_options_that_the_guide_gives_it(command: str) -> None:
    text = help_of(command.split()[1:])
    assert not text.startswith("Usage: kafkaesque [OPTIONS]"), "there is no such command"
    for option in re.findall(r"(?<= )--?[a-z][a-z-]*", command):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{option} of {command}"
