"""`kafkaesque gateway`: runs a gateway, the front end for client connections."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.options import client_options, examples, log_level_option
from kafkaesque.cli.server_settings import read_service_settings, show_settings
from kafkaesque.model.errors import InvalidConfig

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.cli.render import Screen
    from kafkaesque.gateway.config import GatewayConfig

DATA_DEFAULT = Path("kafkaesque-data") / "gateway"
ENVIRONMENT_PREFIX = "KAFKAESQUE_GATEWAY_"
NEEDED = ("websockets", "jwt", "argon2", "kazoo", "aiohttp")


@click.command(
    epilog=examples(
        "kafkaesque gateway --listen 0.0.0.0:7000 --set tls.certificate=gw.pem --set tls.key=gw.key",
        "kafkaesque gateway --listen 0.0.0.0:7000 --insecure   # plaintext, on a trusted network",
        "kafkaesque gateway --name gw-2 --data gw-2 --set zookeeper.connect=127.0.0.1:2181",
        "kafkaesque gateway --data gw-2 --take-over        # a new build takes over, no disconnect",
        "kafkaesque gateway --settings                     # every setting of --set",
        "KAFKAESQUE_GATEWAY_SEND_RATE=200 kafkaesque gateway",
    )
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:7000", show_default=True,
              help="Address for clients: framed TCP and WebSocket on one port.")  # fmt: skip
@click.option("--name", help="Unique name of this gateway.  [default: gw-HOST-PORT]")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=DATA_DEFAULT,
              show_default=True, help="Directory of gateway.json, the key and the hand-over socket.")  # fmt: skip
@click.option("--http-listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
              help="Address of /metrics, /status, /healthz and /readyz.")  # fmt: skip
@click.option("--insecure", is_flag=True,
              help="Allow plaintext listeners that other machines can reach.")  # fmt: skip
@click.option("--take-over", is_flag=True,
              help="Take over the listener and live connections of the process that runs in --data.")  # fmt: skip
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Any setting of --settings; may be repeated.")  # fmt: skip
@click.option("--settings", is_flag=True, help="List the settings and exit.")
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@log_level_option()
@client_options()
def gateway(connection: ClusterConnection, screen: Screen, **options: Any) -> None:
    """Connect TCP and WebSocket clients to the log until Ctrl-C or SIGTERM.

    Prints one line `ready ...` when clients can connect. SIGTERM moves them to other gateways, a few
    at a time; --take-over keeps them. See docs/GATEWAY.md for the protocol and the guarantees.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise CommandFailure(f"the gateway needs {', '.join(missing)}",
                      "pip install 'kafkaesque-platform[gateway]'")  # fmt: skip
    from kafkaesque.gateway.config import GATEWAY_SETTINGS
    from kafkaesque.service.logs import set_up_logs

    set_up_logs("text", options.pop("log_level"))
    if options.pop("settings"):
        show_settings(GATEWAY_SETTINGS, screen)
        return
    config = read_config(options.pop("assignments"))
    _read_addresses(options, has_tls=bool(config.tls_certificate))
    connection.reach()
    _run(connection, config, options, screen)


def _read_addresses(options: dict[str, Any], *, has_tls: bool) -> None:
    """Parse the addresses in place. The status page has no TLS, so the certificate does not cover it."""
    from kafkaesque.cli.service_process import guarded_host_port

    insecure = options.pop("insecure")
    options["listen"] = guarded_host_port(
        "--listen", options["listen"], insecure=insecure, has_tls=has_tls
    )
    options["http_listen"] = guarded_host_port(
        "--http-listen", options["http_listen"], insecure=insecure
    )


def _run(
    connection: ClusterConnection, config: GatewayConfig, options: dict[str, Any], screen: Screen
) -> None:
    from kafkaesque.cli.service_process import run_service
    from kafkaesque.gateway.handover import HandoverFailed
    from kafkaesque.gateway.process import GatewayFailed, GatewayOptions, serve_gateway

    wanted = GatewayOptions(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        config=config,
        **options,
    )
    try:
        summary = run_service(serve_gateway(wanted))
    except HandoverFailed as error:
        raise CommandFailure(
            str(error), "check that a gateway runs with this --data, or start without --take-over"
        ) from None
    except GatewayFailed as error:
        raise CommandFailure(str(error), "`kafkaesque doctor` checks the cluster") from None
    except InvalidConfig as error:
        raise usage(str(error)) from None
    if screen.as_json:
        click.echo(json.dumps(summary))


def read_config(assignments: tuple[str, ...]) -> GatewayConfig:
    """Settings from the environment, overridden by --set."""
    from kafkaesque.gateway.config import GatewayConfig

    return read_service_settings(
        GatewayConfig, assignments, listing="`gateway --settings`", environment=os.environ,
        prefix=ENVIRONMENT_PREFIX,
    )  # fmt: skip
