"""The commands as processes: kill -9 and restart, clean stop, output and files."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.sources.harness import SEED, Arrived, arrived, deleted_by_the_end, expected
from tests.waiting import eventually

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.testing import Broker

pytestmark = pytest.mark.story

COMMAND = "from kafkaesque.cli.source import source; source(prog_name='kafkaesque source')"
TAGS = ("news", "kafka")
COUNT = 1500
RATE = 1000


class Process:
    """A `kafkaesque source ...` process that is ready."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        with (directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        output = self.process.stdout
        assert output is not None
        self.output = output
        assert select.select([output], [], [], 30)[0], (directory / "log").read_text()
        line = output.readline().decode()
        assert line.startswith("ready "), line + (directory / "log").read_text()
        self.facts = dict(word.split("=", 1) for word in line.split()[1:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()

    def stop(self) -> str:
        """Sends SIGTERM and returns the rest of the output."""
        self.process.send_signal(signal.SIGTERM)
        rest = self.output.read().decode()
        assert self.process.wait(20) == 0
        self.output.close()
        return rest


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[Process]:
    process = Process(directory, *arguments)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.kill()


def in_log(broker: Broker) -> Arrived:
    return asyncio.run(arrived(KafkaLog(broker.bootstrap_servers)))


@pytest.mark.parametrize("network", ["bluesky", "mastodon", "x"])
def test_source_killed_repeatedly_loses_and_duplicates_nothing(
    network: str, tmp_path: Path
) -> None:
    posts = expected(network, COUNT, TAGS)
    gone = deleted_by_the_end(posts, COUNT)
    serve = ("serve", "--seed", str(SEED), "--rate", str(RATE), "--count", str(COUNT),
             "--fault", "disconnect_every=300")  # fmt: skip
    with Broker() as broker, started(tmp_path, *serve) as server:
        run = ("run", network, "-b", broker.bootstrap_servers, "--tag", TAGS[0], "--tag", TAGS[1],
               "--url", f"http://{server.facts['http']}", "--set", "backoff.scale=0.01",
               "--set", "x.enterprise=true", "--set", "cursor.rewind.ms=500")  # fmt: skip
        reached = 0
        for _ in range(3):
            with started(tmp_path, *run) as source:
                eventually(lambda least=reached: len(in_log(broker).posts) > least)
                source.kill()
            reached = min(len(in_log(broker).posts) + 100, len(posts) - len(gone) - 1)
        with started(tmp_path, *run):
            eventually(lambda: set(posts) - gone <= set(in_log(broker).posts))
        found = in_log(broker)
    assert set(posts) - set(found.posts) <= (set() if network == "bluesky" else gone)
    assert set(found.posts) <= set(posts)
    assert set(found.posts.values()) == {1}
    assert set(found.deleted.values()) <= {1}
    assert set(found.deleted) <= gone


def test_source_without_url_starts_its_own_server_and_stops_cleanly(tmp_path: Path) -> None:
    with Broker() as broker:
        arguments = ("run", "-b", broker.bootstrap_servers, "--rate", "500", "--json")
        with started(tmp_path, *arguments) as source:
            data = tmp_path / "kafkaesque-data" / "source-bluesky"
            kept = json.loads((data / "source.json").read_text())
            assert (kept["pid"], kept["http"]) == (source.facts["pid"], source.facts["http"])
            base = f"http://{source.facts['http']}"
            eventually(lambda: fetch(f"{base}/status")["posts"] > 50)
            metrics = urllib.request.urlopen(f"{base}/metrics").read().decode()
            assert 'kafkaesque_source_posts_total{network="bluesky"}' in metrics
            summary = json.loads(source.stop().splitlines()[-1])
        assert summary["posts"] == len(in_log(broker).posts)
        assert not (data / "source.json").exists()
        # The timeline is kept: the next run continues it without duplicates.
        with started(tmp_path, *arguments) as source:
            assert source.facts["seed"] == summary["seed"]
            eventually(lambda: len(in_log(broker).posts) > summary["posts"] + 50)
            source.stop()
        assert set(in_log(broker).posts.values()) == {1}


@pytest.mark.parametrize("network", ["bluesky", "mastodon", "x"])
def test_live_source_connects_to_the_given_server_with_its_token(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--live with the network's own token, access level and backoff; only the address is local."""
    monkeypatch.setenv("KAFKAESQUE_MASTODON_TOKEN", "secret")
    monkeypatch.setenv("KAFKAESQUE_X_TOKEN", "secret")
    serve = ("serve", "--seed", str(SEED), "--rate", "200", "--token", "secret")
    with Broker() as broker, started(tmp_path, *serve) as server:
        run = ("run", network, "--live", "-b", broker.bootstrap_servers, "--tag", TAGS[0],
               "--url", f"http://{server.facts['http']}", "--limit", "20")  # fmt: skip
        with started(tmp_path, *run) as source:
            assert source.process.wait(60) == 0
            source.output.close()
        found = in_log(broker)
        assert len(found.posts) >= 20
        assert set(found.posts) <= set(expected(network, 5000, TAGS[:1]))


def test_limit_ends_the_source(tmp_path: Path) -> None:
    with Broker() as broker:
        arguments = ("run", "x", "-b", broker.bootstrap_servers, "--rate", "500", "--limit", "100")
        with started(tmp_path, *arguments) as source:
            assert source.process.wait(30) == 0
            assert "stopped after" in source.output.read().decode()
            source.output.close()
        assert len(in_log(broker).posts) >= 100


def test_server_disconnects_on_request_and_reports_its_counts(tmp_path: Path) -> None:
    with started(tmp_path, "serve", "--data", str(tmp_path / "d"), "--json") as server:
        kept = json.loads((tmp_path / "d" / "server.json").read_text())
        assert kept["http"] == server.facts["http"]
        base = f"http://{server.facts['http']}"
        assert fetch(f"{base}/local/status")["published"] >= 0
        assert fetch(f"{base}/local/disconnect", b"") == {"disconnected": 0}
        assert fetch(f"{base}/local/faults", b'{"disconnect_every": 5}')["disconnect_every"] == 5
        summary = json.loads(server.stop().splitlines()[-1])
        assert summary["pid"] == str(server.process.pid)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "mastodon", "--live", "--tag", "a"), "choose one with --url"),
        (("run", "x", "--live"), "--tag at least once"),
        (("run", "x", "--live", "--tag", "a"), "KAFKAESQUE_X_TOKEN"),
        (("run", "--tag", "two words"), "is not a hashtag"),
        (("run", "--set", "dedup.window.post=1"), "did you mean dedup.window.posts"),
        (("run", "--set", "deletes=some"), "deletes"),
        (("serve", "--fault", "rain=1"), "is not a fault"),
        (("serve", "--listen", "nowhere"), "is not HOST:PORT"),
        (("run", "-b", "127.0.0.1:1"), "cannot reach 127.0.0.1:1"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if "KAFKAESQUE" not in name}
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode != 0
    assert text in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr


def fetch(url: str, data: bytes | None = None) -> dict[str, int]:
    with urllib.request.urlopen(url, data) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found
