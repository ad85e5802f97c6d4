from __future__ import annotations

import io

import pytest

from kafkaesque.admin.errors import (
    AdminError,
    BrokerUnavailable,
    ClusterUnreachable,
    ResourceNotFound,
)
from kafkaesque.cli.failures import (
    CannotConnect,
    CommandFailure,
    ExitCode,
    TargetNotFound,
    failure_of,
)


def test_a_failure_is_shown_with_its_fix() -> None:
    stream = io.StringIO()
    CommandFailure("it broke", "mend it").show(stream)
    assert stream.getvalue() == "error: it broke\n  fix: mend it\n"


def test_exit_codes_have_the_numbers_that_scripts_rely_on() -> None:
    """The other tests compare with the names."""
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "CANNOT_CONNECT": 3,
        "NOT_FOUND": 4,
        "INTERRUPTED": 130,
    }
    assert (CommandFailure.exit_code, CannotConnect.exit_code, TargetNotFound.exit_code) == (
        ExitCode.FAILED,
        ExitCode.CANNOT_CONNECT,
        ExitCode.NOT_FOUND,
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
