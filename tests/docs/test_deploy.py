"""deploy/, as far as it can be tested here: units, settings, TLS termination, the container file."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import trustme
from confluent_kafka import Consumer, Producer
from tests.docs.snippets import ROOT
from tests.waiting import eventually

from kafkaesque.cli import main
from kafkaesque.model.settings import BROKER_SETTINGS

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is missing: apt install systemd",
)
@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text().replace("/opt/kafkaesque/bin/kafkaesque", "/bin/true")
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_command_of_a_unit_has_the_options_and_variables_that_it_uses(unit: Path) -> None:
    text = unit.read_text().replace("\\\n", " ")
    match = re.search(r"^ExecStart=\S+ (\w+)(.*)$", text, re.MULTILINE)
    assert match
    command = main.cli.get_command(click.Context(main.cli), match[1])
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", match[2])) <= known
    environment = re.search(r"^EnvironmentFile=/etc/kafkaesque/(\S+)$", text, re.MULTILINE)
    assert environment
    given = set(re.findall(r"^(\w+)=", (DEPLOY / environment[1]).read_text(), re.MULTILINE))
    assert set(re.findall(r"\$\{?(\w+)", match[2])) == given


def test_settings_are_settings_of_the_broker() -> None:
    lines = (DEPLOY / "broker.properties").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            BROKER_SETTINGS[name].parse(value)


def test_container_file_copies_existing_files_and_names_existing_extras() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for path in line.split():
            assert (ROOT / path).exists(), path
    extras = re.search(r"'\.\[(.+)\]'", text)
    assert extras
    project = (ROOT / "pyproject.toml").read_text()
    for name in extras[1].split(","):
        assert re.search(rf"^{name} = \[", project, re.MULTILINE), name
    steps = re.findall(r"^([A-Z]+) ", text, re.MULTILINE)
    assert set(steps) <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE",
                          "STOPSIGNAL", "ENTRYPOINT", "CMD"}  # fmt: skip
    assert steps.index("USER") < steps.index("ENTRYPOINT")


def free_port_on(*hosts: str) -> int:
    """A port that is free on all of these loopback addresses."""
    while True:
        with socket.create_server((hosts[0], 0)) as probe:
            port: int = probe.getsockname()[1]
            try:
                for host in hosts[1:]:
                    socket.create_server((host, port)).close()
            except OSError:
                continue
            return port


class Secured:
    """A broker behind HAProxy, by one name: TLS outside, plaintext on the private address."""

    def __init__(self, address: str, authority: Path) -> None:
        self.properties = {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority),
        }


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is missing: run tools/setup-clients")
    public, private = "127.0.0.1", "127.0.0.2"
    port = free_port_on(public, private)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert(public).private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "k1.pem")
    )
    broker = subprocess.Popen(
        [*COMMAND, "broker", "--data", str(tmp_path / "data"), "--listen", f"{private}:{port}",
         "--advertise", f"{public}:{port}"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    proxy = None
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready")
        proxy = subprocess.Popen(
            ["haproxy", "-db", "-f", str(DEPLOY / "haproxy.cfg")],
            env=os.environ | {"PUBLIC": f"{public}:{port}", "PRIVATE": f"{private}:{port}",
                              "CERTIFICATE": str(tmp_path / "k1.pem")},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until_listening(public, port)
        yield Secured(f"{public}:{port}", tmp_path / "ca.pem")
    finally:
        for process in (proxy, broker):
            if process is not None:
                process.terminate()
                process.communicate(timeout=60)


def wait_until_listening(host: str, port: int) -> None:
    def accepts() -> bool:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            return False
        return True

    eventually(accepts, "haproxy does not listen")


@pytest.mark.story
@pytest.mark.timeout(300)
def test_clients_write_and_read_through_a_tls_proxy(secured: Secured) -> None:
    producer = Producer(secured.properties)
    producer.produce("orders", "secret")
    assert producer.flush(60) == 0
    consumer = Consumer(
        secured.properties | {"group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert message.value() == b"secret"
