"""Options of `kafkaesque cluster`. tests/stories runs it."""

from __future__ import annotations

import pytest

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "node.id=4"], "each broker needs its own value"),
        (["--set", "num.partition=4"], "did you mean num.partitions?"),
        (["--port", "65535"], "no 3 ports from 65535 on"),
        (["-n", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", *arguments]) == ExitCode.USAGE
    assert text in capsys.readouterr().err
