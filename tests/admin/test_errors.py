from __future__ import annotations

import pytest

from kafkaesque.admin.errors import refusal
from kafkaesque.cli.failures import ExitCode, failure_of
from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "message", "text", "exit_code"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "cannot move: UNKNOWN_TOPIC_OR_PARTITION", ExitCode.NOT_FOUND),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 9 is unknown", "cannot move: Broker ID 9 is unknown (BROKER_ID_NOT_REGISTERED)", ExitCode.NOT_FOUND),
        (ErrorCode.NOT_CONTROLLER, None, "cannot move: NOT_CONTROLLER", ExitCode.FAILED),
        (9999, None, "cannot move: error 9999", ExitCode.FAILED),
    ],
)  # fmt: skip
def test_refusal_names_the_code_and_fits_the_exit_code(
    code: int, message: str | None, text: str, exit_code: int
) -> None:
    failure = failure_of(refusal(code, message, "move"))
    assert failure.message == text
    assert failure.exit_code == exit_code


def test_unknown_codes_keep_their_number() -> None:
    assert error_name(12345) == "error 12345"
