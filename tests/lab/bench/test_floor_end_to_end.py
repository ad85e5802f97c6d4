"""The load generator against the floor server, in real processes: a tiny run of every kind of raw load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.load_process import HeldLoad, run_load
from kafkaesque.lab.bench.peers import Peer, PeerFailed, PeerOptions, make_peer, running
from kafkaesque.lab.bench.raw_load import LoadFailed

BATCH_COUNT = 8


@pytest.fixture(scope="module")
def stored() -> tuple[bytes, int]:
    return requests.make_batch(100, 16_384)


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory, stored: tuple[bytes, int]) -> Iterator[Peer]:
    batch, records = stored
    directory = tmp_path_factory.mktemp("floor")
    batches = directory / "batches"
    batches.write_bytes(
        b"".join((index * records).to_bytes(8) + batch[8:] for index in range(BATCH_COUNT))
    )
    arguments = ["--fetch-file", str(batches), "--batch-bytes", str(len(batch))]
    arguments += ["--batch-records", str(records)]
    options = PeerOptions(directory / "peers", floor_arguments=arguments)
    with running(["floor"], options) as peers:
        yield peers[0]


def spec(floor: Peer, **more: Any) -> dict[str, Any]:
    return {"host": floor.host, "port": floor.port, "topic": "bench", "acks": 1, **more}


def test_replay_counts_every_record_once(floor: Peer, stored: tuple[bytes, int]) -> None:
    batch, records = stored
    load = run_load(
        "replay",
        spec(floor, partitions=2, connections=2, in_flight=5, count=20)
        | {"record_bytes": 100, "batch_bytes": 16_384},
    )
    assert load["requests"] == 40
    assert load["records"] == 40 * records
    assert load["size_bytes"] == 40 * len(batch)
    # The floor keeps whole frames, so its file is larger than the batches alone.
    written = (floor.options.directory / "floor" / "frames").stat().st_size
    assert written > load["size_bytes"]
    floor.forget_data()
    assert (floor.options.directory / "floor" / "frames").stat().st_size == 0


def test_fetch_reads_the_stored_batches_repeatedly(floor: Peer, stored: tuple[bytes, int]) -> None:
    batch, records = stored
    wanted = 2 * BATCH_COUNT * len(batch)
    load = run_load(
        "fetch",
        spec(floor, connections=1, answered_topic="bench", partition_bytes_max=3 * len(batch))
        | {"batch_bytes": len(batch), "batch_records": records}
        | {"end_offset": BATCH_COUNT * records, "size_bytes": wanted},
    )
    # 3 + 3 + 2 batches a round, twice.
    assert load["requests"] == 6
    assert load["records"] == 2 * BATCH_COUNT * records


def test_latency_has_ordered_percentiles(floor: Peer) -> None:
    load = run_load("latency", spec(floor, record_bytes=100, count=50, warm_up=5))
    assert 0 < load["p50_ms"] <= load["p99_ms"] <= load["p999_ms"]


def test_idle_connections_are_held_until_released(floor: Peer) -> None:
    before = floor.open_files()
    load = HeldLoad("idle", spec(floor, count=20))
    try:
        load.wait_until_held()
        assert floor.open_files() >= before + 20
        assert load.release()["alive"] == 20
    finally:
        load.abandon()


def test_failed_load_reports_its_error(floor: Peer) -> None:
    with pytest.raises(LoadFailed, match="refused"):
        run_load(
            "latency", {"host": "127.0.0.1", "port": 1, "topic": "t", "record_bytes": 1, "acks": 1}
        )


def test_error_of_a_server_that_does_not_start_contains_its_log(tmp_path: Path) -> None:
    peer = make_peer("floor", PeerOptions(tmp_path, floor_arguments=["--no-such-flag"]))
    try:
        with pytest.raises(PeerFailed, match="no-such-flag"):
            peer.start()
    finally:
        peer.stop()
