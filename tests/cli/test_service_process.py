"""Errors of a server process become failures of its command."""

from __future__ import annotations

import click
import pytest

from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.cli.service_process import host_port, run_service
from kafkaesque.client.ports import LogUnavailable


def test_option_that_is_no_address_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="'9092' is not HOST:PORT"):
        host_port("9092")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(LogUnavailable("no log"), CommandFailure), (OSError("taken"), CannotConnect)],
)
def test_error_of_a_service_is_shown_to_the_user(error: Exception, kind: type) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(kind, match=str(error)):
        run_service(work())
