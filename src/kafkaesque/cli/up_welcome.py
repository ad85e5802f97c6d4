"""The message that `kafkaesque up` prints when the platform is up."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkaesque.testing.reserved_ports import HOST
from kafkaesque.up.plan import Platform
from kafkaesque.up.ports import CHAT_WEB_PORT, CONSOLE_PORT, GATEWAY_PORTS
from kafkaesque.up.supervisor import ProcessState, Service


def address(service: Service) -> str:
    """The address of a service, from the facts of its `ready` line."""
    facts = service.facts
    for name in ("kafka", "url", "tcp", "smtp", "http"):
        if ":" in facts.get(name, ""):
            return facts[name]
    return "ready"


def as_json(services: Sequence[Service], platform: Platform) -> str:
    return json.dumps(
        {
            "bootstrap_servers": platform.bootstrap,
            "zookeeper_connect": platform.zookeeper,
            "services": [
                {**item.facts, "name": item.name, "state": item.state.value, "pid": item.pid,
                 "log": str(item.log)}
                for item in services
            ],
        }
    )  # fmt: skip


def as_text(services: Sequence[Service], platform: Platform, *, spark_follows: bool) -> str:
    """The message for people. Lists only services that run."""
    names = {service.name for service in services if service.state is ProcessState.RUNNING}
    lines = ["", *_sentences(services), ""]
    if "console" in names:
        lines.append(f"  console             http://{platform.address(CONSOLE_PORT)}")
    if "chat-web" in names:
        lines.append(f"  chat                http://{platform.address(CHAT_WEB_PORT)}")
    gateways = [
        platform.address(port)
        for number, port in enumerate(GATEWAY_PORTS)
        if f"gateway-{number}" in names
    ]
    if gateways:
        lines.append(f"  gateways            {','.join(gateways)}")
    lines += [
        f"  bootstrap.servers   {platform.bootstrap}",
        f"  zookeeper.connect   {platform.zookeeper}",
    ]
    brokers = [service for service in services if service.name.startswith("broker-")]
    if brokers:
        texts = ",".join(broker.facts["text"] for broker in brokers)
        metrics = f"http://{brokers[0].facts['http']}/metrics  /healthz  /readyz"
        lines += [f"  telnet, nc          {texts}", f"  metrics, health     {metrics}"]
    lines += [
        f"  data, logs          {platform.data}, {platform.data / 'logs'}",
        "",
        "Try next, in another terminal:",
        "",
        *_commands(names, platform),
        "",
        *([_kill_hint(brokers[-1])] if brokers else []),
        *(["Spark is still starting."] if spark_follows else []),
        "Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def _sentences(services: Sequence[Service]) -> list[str]:
    missing = [service for service in services if service.state is not ProcessState.RUNNING]
    if not missing:
        return ["Kafkaesque is up."]
    names = ", ".join(service.name for service in missing)
    logs = [f"  {service.name:<19} {service.log}" for service in missing]
    return [
        f"Kafkaesque is up, except {names}, which will be restarted. See the logs:",
        *logs,
    ]


def _commands(names: set[str], platform: Platform) -> list[str]:
    first = platform.bootstrap.split(",")[0]
    option = "" if first == f"{HOST}:9092" else f" -b {first}"
    command = _command()
    commands = [
        f"  echo 'hello, Gregor' | {command} produce greetings{option}",
        f"  {command} consume greetings --from beginning{option}",
    ]
    if "source" in names:
        commands.append(f"  {command} consume social.posts --follow{option}")
    if "gateway-0" in names and "chat-0" in names:
        gateway = platform.address(GATEWAY_PORTS[0])
        where = "" if gateway == f"{HOST}:7000" else f" -g {gateway}"
        commands.append(f"  {command} chat client --name gregor --register{where}")
    data = "" if platform.data == Path("kafkaesque-data").absolute() else f" --data {platform.data}"
    return [*commands, f"  {command} status{data}"]


def _kill_hint(broker: Service) -> str:
    return f"Then kill a broker with kill -9 {broker.facts['pid']}, or from the console."


def _command() -> str:
    """How to call this program from the current directory."""
    if shutil.which("kafkaesque"):
        return "kafkaesque"
    return os.path.relpath(Path(sys.executable).parent / "kafkaesque")
