from __future__ import annotations

import io

import pytest

from kafkaesque.admin.errors import (
    AdminError,
    BrokerUnavailable,
    ClusterUnreachable,
    ResourceNotFound,
)
from kafkaesque.cli.failures import CannotConnect, CommandFailure, TargetNotFound, failure_of


def test_a_failure_is_shown_with_its_fix() -> None:
    stream = io.StringIO()
    CommandFailure("it broke", "mend it").show(stream)
    assert stream.getvalue() == "error: it broke\n  fix: mend it\n"


def test_exit_codes_match_the_help() -> None:
    assert (CommandFailure.exit_code, CannotConnect.exit_code, TargetNotFound.exit_code) == (
        1,
        3,
        4,
    )


@pytest.mark.parametrize(
    ("error", "failure", "fix"),
    [
        (AdminError("no", "do this"), CommandFailure, "do this"),
        (ResourceNotFound("no", "do this"), TargetNotFound, "do this"),
        (BrokerUnavailable("no"), CannotConnect, "--timeout"),
        (ClusterUnreachable("no"), CannotConnect, "kafkaesque broker"),
    ],
)
def test_an_admin_error_becomes_a_failure_with_a_fix(
    error: AdminError, failure: type[CommandFailure], fix: str
) -> None:
    found = failure_of(error)
    assert type(found) is failure
    assert fix in (found.fix or "")
