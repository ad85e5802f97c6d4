"""`kafkaesque tasks chat-jobs` and `mail-catcher`: the chat jobs, and a test server for their mails."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.options import client_options, examples, json_option, read_pair
from kafkaesque.cli.render import Screen
from kafkaesque.cli.server_settings import read_service_settings
from kafkaesque.cli.tasks_options import DATA_DEFAULT, read_config, run_worker, server_options
from kafkaesque.cli.terminal_text import visible

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.tasks.jobs.catcher import Caught

PASSWORD_VARIABLE = "KAFKAESQUE_MAIL_PASSWORD"  # noqa: S105 - the variable's name


@click.command(
    "chat-jobs",
    epilog=examples(
        "kafkaesque tasks chat-jobs --timers",
        "kafkaesque tasks chat-jobs --timers --set mail.tls=none --set unread.after.ms=5000",
        "kafkaesque tasks chat-jobs --set webhook.url=https://push.example.org/hook \\",
        "    --set mail.host=smtp.example.org --set mail.port=587 --set mail.username=chat",
    ),
)
@click.option("--name", help="Name of this worker.  [default: from host and process]")
@click.option("--timers", is_flag=True, help="Also run the timers, like `tasks timers`.")
@server_options
@client_options()
def chat_jobs(connection: ClusterConnection, screen: Screen, **options: Any) -> None:
    """Run the chat jobs: notifications, mails about messages unread for 24 hours, and statistics.

    Notifications go to the gateway inbox of connected users and to a webhook for others. --set accepts
    the settings of `tasks settings` and `tasks settings --jobs`.
    """
    from kafkaesque.service.logs import set_up_logs
    from kafkaesque.tasks.jobs.app import ChatJobs
    from kafkaesque.tasks.jobs.config import JOBS_SETTINGS, JobsConfig

    set_up_logs("text", options.pop("log_level"))
    assignments = options.pop("assignments")
    mine = [text for text in assignments if read_pair(text)[0] in JOBS_SETTINGS]
    config = read_config(tuple(text for text in assignments if text not in mine))
    data = options.pop("data") or DATA_DEFAULT / "chat-jobs"
    password = os.environ.get(PASSWORD_VARIABLE, "")
    settings = read_service_settings(JobsConfig, mine, listing="`tasks settings --jobs`")
    try:
        jobs = ChatJobs(settings, password=password, zookeeper=options["zookeeper"], data=data)
    except (OSError, ValueError) as error:
        raise CommandFailure(
            f"cannot set up the mails: {error}",
            "`tasks settings --jobs` documents the mail settings",
        ) from None
    connection.reach()
    run_worker(connection, screen, jobs.app, (), config=config, data=data, **options)


@click.command(
    "mail-catcher",
    epilog=examples(
        "kafkaesque tasks mail-catcher",
        "kafkaesque tasks mail-catcher --listen 127.0.0.1:1025 --data /tmp/mails",
        "kafkaesque tasks mail-catcher --cert cert.pem --key key.pem      # offers STARTTLS",
    ),
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:1025", show_default=True,
              help="Address of the SMTP server; port 0 picks a free one.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              help="Directory of the mails, one .eml each.  [default: kafkaesque-data/mails]")  # fmt: skip
@click.option("--cert", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Certificate for STARTTLS, in PEM format.")  # fmt: skip
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Private key of --cert, in PEM format.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@json_option
def mail_catcher(
    screen: Screen,
    listen: str,
    data: Path | None,
    cert: Path | None,
    key: Path | None,
    end_with_stdin: bool,
) -> None:
    """Run an SMTP server that delivers nothing: it prints and stores the mails."""
    from kafkaesque.cli.service_process import host_port, run_service
    from kafkaesque.service.child_process import print_ready
    from kafkaesque.service.process import stop_event
    from kafkaesque.tasks.jobs.catcher import MailCatcher

    context = _tls_context(cert, key)

    async def catch() -> dict[str, Any]:
        stopping = stop_event(end_with_stdin)
        directory = data or DATA_DEFAULT / "mails"
        async with MailCatcher(directory, context, _show) as catcher:
            address = await catcher.start(*host_port(listen))
            print_ready({"smtp": address, "data": str(directory), "pid": str(os.getpid())})
            await stopping.wait()
            return {"caught": len(catcher.caught)}

    summary = run_service(catch())
    screen.document(summary, lambda: screen.line(f"stopped after {summary['caught']} mails"))


def _tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise usage("--cert and --key must be used together.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise CommandFailure(
            f"cannot use the certificate: {error}", "use a PEM certificate and its private key"
        ) from None
    return context


def _show(caught: Caught) -> None:
    recipients = ", ".join(caught.recipients)
    click.echo(visible(f"from {caught.sender} to {recipients}: {caught.message['Subject']}"))
    sys.stdout.flush()
