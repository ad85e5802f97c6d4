"""What `kafkaesque up` says when everything runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkaesque.cli.supervisor import Service, State
from kafkaesque.cli.up_plan import CHAT_WEB_PORT, CONSOLE_PORT, GATEWAY_PORTS, Surroundings
from kafkaesque.testing.reserved_ports import HOST

Tell = Callable[[Service], None]


def address(service: Service) -> str:
    """Where a service is found, by what it said when it was ready."""
    facts = service.facts
    for name in ("kafka", "url", "tcp", "smtp", "http"):
        if ":" in facts.get(name, ""):
            return facts[name]
    return "ready"


def as_json(services: Sequence[Service], around: Surroundings) -> str:
    return json.dumps(
        {
            "bootstrap_servers": around.bootstrap,
            "zookeeper_connect": around.zookeeper,
            "services": [
                {**item.facts, "name": item.name, "state": item.state.value, "pid": item.pid,
                 "log": str(item.log)}
                for item in services
            ],
        }
    )  # fmt: skip


def as_text(services: Sequence[Service], around: Surroundings, *, spark_follows: bool) -> str:
    """Of those that run: an address where nobody listens helps nobody."""
    names = {service.name for service in services if service.state is State.RUNNING}
    lines = ["", *_sentences(services), ""]
    if "console" in names:
        lines.append(f"  console             http://{around.address(CONSOLE_PORT)}")
    if "chat-web" in names:
        lines.append(f"  chat                http://{around.address(CHAT_WEB_PORT)}")
    gateways = [
        around.address(port)
        for number, port in enumerate(GATEWAY_PORTS)
        if f"gateway-{number}" in names
    ]
    if gateways:
        lines.append(f"  gateways            {','.join(gateways)}")
    lines += [
        f"  bootstrap.servers   {around.bootstrap}",
        f"  zookeeper.connect   {around.zookeeper}",
    ]
    brokers = [service for service in services if service.name.startswith("broker-")]
    if brokers:
        texts = ",".join(broker.facts["text"] for broker in brokers)
        metrics = f"http://{brokers[0].facts['http']}/metrics  /healthz  /readyz"
        lines += [f"  telnet, nc          {texts}", f"  metrics, health     {metrics}"]
    lines += [
        f"  data, logs          {around.data}, {around.data / 'logs'}",
        "",
        "Try next, in another terminal:",
        "",
        *_commands(names, around),
        "",
        *([_dare(brokers[-1])] if brokers else []),
        *(["Spark is starting, which takes a while."] if spark_follows else []),
        "Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def _sentences(services: Sequence[Service]) -> list[str]:
    missing = [service for service in services if service.state is not State.RUNNING]
    if not missing:
        return ["Kafkaesque is up."]
    names = ", ".join(service.name for service in missing)
    logs = [f"  {service.name:<19} {service.log}" for service in missing]
    return [
        f"Kafkaesque is up, but not {names}: tried again until it runs. Why, say the logs:",
        *logs,
    ]


def _commands(names: set[str], around: Surroundings) -> list[str]:
    first = around.bootstrap.split(",")[0]
    option = "" if first == f"{HOST}:9092" else f" -b {first}"
    command = _command()
    commands = [
        f"  echo 'hello, Gregor' | {command} produce greetings{option}",
        f"  {command} consume greetings --from beginning{option}",
    ]
    if "source" in names:
        commands.append(f"  {command} consume social.posts --follow{option}")
    if "gateway-0" in names and "chat-0" in names:
        gateway = around.address(GATEWAY_PORTS[0])
        where = "" if gateway == f"{HOST}:7000" else f" -g {gateway}"
        commands.append(f"  {command} chat client --name gregor --register{where}")
    data = "" if around.data == Path("kafkaesque-data").absolute() else f" --data {around.data}"
    return [*commands, f"  {command} status{data}"]


def _dare(broker: Service) -> str:
    return (
        f"Then end a broker (kill -9 {broker.facts['pid']}), or press the buttons in the console."
    )


def _command() -> str:
    """How the reader can call this program from the directory they are in."""
    if shutil.which("kafkaesque"):
        return "kafkaesque"
    return os.path.relpath(Path(sys.executable).parent / "kafkaesque")
