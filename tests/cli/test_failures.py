from __future__ import annotations

import io

from kafkaesque.cli.failures import CannotConnect, CommandFailure, TargetNotFound


def test_a_failure_is_shown_with_its_fix() -> None:
    stream = io.StringIO()
    CommandFailure("it broke", "mend it").show(stream)
    assert stream.getvalue() == "error: it broke\n  fix: mend it\n"


def test_exit_codes_are_those_in_the_help() -> None:
    assert (CommandFailure.exit_code, CannotConnect.exit_code, TargetNotFound.exit_code) == (
        1,
        3,
        4,
    )
