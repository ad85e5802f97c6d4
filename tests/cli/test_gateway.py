"""`kafkaesque gateway` as scripts see it, without a broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import cli

NO_BROKER = ("gateway", "-b", "127.0.0.1:1", "--timeout", "1")
TLS = ("--set", "tls.certificate=gw.pem", "--set", "tls.key=gw.key")


@pytest.mark.parametrize(
    "options",
    [
        ("--listen", "0.0.0.0:0"),
        ("--listen", "[::]:0"),
        ("--listen", "gw.example:0"),
        ("--http-listen", "0.0.0.0:0"),
        ("--http-listen", "0.0.0.0:0", *TLS),
    ],
)
def test_a_plaintext_address_beyond_loopback_needs_insecure(options: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*NO_BROKER, *options])
    assert done.exit_code == ExitCode.USAGE
    assert f"{options[0]}: {options[1][:-2].strip('[]')} can be reached" in done.output
    assert "--insecure" in done.output


@pytest.mark.parametrize(
    "options",
    [
        ("--listen", "127.0.0.2:0", "--http-listen", "[::1]:0"),
        ("--listen", "localhost:0"),
        ("--listen", "0.0.0.0:0", *TLS),
        ("--listen", "0.0.0.0:0", "--http-listen", "0.0.0.0:0", "--insecure"),
    ],
)
def test_loopback_tls_and_insecure_addresses_are_accepted(options: tuple[str, ...]) -> None:
    """The command gets as far as the broker, which does not run."""
    assert CliRunner().invoke(cli, [*NO_BROKER, *options]).exit_code == ExitCode.CANNOT_CONNECT
