from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.cli.options import client_options, examples, read_pair, read_properties
from kafkaesque.cli.render import Screen


@click.command()
@client_options(timeout_s=7)
def probe(connection: ClusterConnection, screen: Screen) -> None:
    click.echo(f"{connection.bootstrap} {connection.properties} {connection.timeout_s}")


def outcome(*args: str, **environment: str) -> str:
    return CliRunner(env={"KAFKAESQUE_BOOTSTRAP": None, **environment}).invoke(probe, args).output


def test_defaults() -> None:
    assert outcome() == "127.0.0.1:9092 {} 7.0\n"


def test_a_flag_wins_over_the_file_and_the_file_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\nbootstrap.servers=file:1\n\nsasl.username = me\n")
    config = ("--client-config", str(file))
    assert outcome(KAFKAESQUE_BOOTSTRAP="env:1").startswith("env:1 ")
    assert outcome(*config, KAFKAESQUE_BOOTSTRAP="env:1").startswith("file:1 ")
    assert outcome(*config, "-b", "flag:1") == "flag:1 {'sasl.username': 'me'} 7.0\n"
    assert outcome(*config, "-X", "sasl.username=you", "-X", "bootstrap.servers=x:1") == (
        "x:1 {'sasl.username': 'you'} 7.0\n"
    )


def test_line_that_is_not_a_property_is_rejected_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("a=1\nnonsense\n")
    with pytest.raises(click.UsageError, match="properties:2"):
        read_properties(file)


@pytest.mark.parametrize(
    ("text", "pair"), [("a=b", ("a", "b")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c"))]
)
def test_pairs(text: str, pair: tuple[str, str]) -> None:
    assert read_pair(text) == pair


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_text_that_is_not_a_pair_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError):
        read_pair(text)


def test_examples_keep_their_lines() -> None:
    assert examples("one", "two") == "\b\nExamples:\n  one\n  two"
