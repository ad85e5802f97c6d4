from __future__ import annotations

import pytest

from kafkaesque.cli.cluster_requests import error_name, refusal


@pytest.mark.parametrize(
    ("code", "message", "text", "exit_code"),
    [
        (3, None, "cannot move: UNKNOWN_TOPIC_OR_PARTITION", 4),
        (102, "Broker ID 9 is unknown", "cannot move: Broker ID 9 is unknown (BROKER_ID_NOT_REGISTERED)", 4),
        (41, None, "cannot move: NOT_CONTROLLER", 1),
        (9999, None, "cannot move: error 9999", 1),
    ],
)  # fmt: skip
def test_refusal_names_the_code_and_fits_the_exit_code(
    code: int, message: str | None, text: str, exit_code: int
) -> None:
    failure = refusal(code, message, "move")
    assert failure.message == text
    assert failure.exit_code == exit_code


def test_unknown_codes_keep_their_number() -> None:
    assert error_name(12345) == "error 12345"
