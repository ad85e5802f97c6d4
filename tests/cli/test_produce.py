from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from kafkaesque.cli.failures import ExitCode


def test_lines_become_records_and_the_summary_stays_off_stdout(command: Run, topic: str) -> None:
    outcome = command("produce", topic, "-p", "0", stdin="one\ntwo\n")
    assert (outcome.code, outcome.out) == (ExitCode.OK, "")
    assert "2 records (6 B) written" in outcome.err
    assert command("consume", topic).out == "one\ntwo\n"


def test_the_json_summary_counts_records_and_bytes(run: Run, topic: str) -> None:
    summary = run("produce", topic, "-K", ":", "--json", stdin="k:vv\n").json
    assert (summary["records"], summary["bytes"], summary["failed"]) == (1, 3, 0)


def test_key_headers_partition_and_timestamp_come_from_options(run: Run, topic: str) -> None:
    options = ["-k", "key", "-H", "a=1", "-H", "b=x=y", "-p", "1", "--timestamp", "1700000000000"]
    assert run("produce", topic, *options, stdin="v\n").code == ExitCode.OK
    (record,) = run("consume", topic, "--json").json_lines
    assert record == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create_time",
        "key": "key",
        "value": "v",
        "headers": {"a": "1", "b": "x=y"},
    }


def test_a_marker_writes_a_tombstone(run: Run, topic: str) -> None:
    run("produce", topic, "-K", ":", "-Z", "", stdin="gone:\n")
    (record,) = run("consume", topic, "--json").json_lines
    assert (record["key"], record["value"]) == ("gone", None)


def test_a_file_can_be_one_value(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"\xff\x00\nbytes")
    assert run("produce", topic, str(file), "--format", "raw").code == ExitCode.OK
    (record,) = run("consume", topic, "--json").json_lines
    assert record["value_base64"] == "/wAKYnl0ZXM="
    assert run("consume", topic, "--hex").out == "ff000a6279746573\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_reads_back(run: Run, topic: str, codec: str) -> None:
    text = "".join(f"line {number}\n" for number in range(200))
    assert run("produce", topic, "-p", "0", "-z", codec, stdin=text).code == ExitCode.OK
    assert run("consume", topic).out == text


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(run: Run, topic: str, acks: str) -> None:
    assert run("produce", topic, "--acks", acks, "--json", stdin="x\n").json["records"] == 1


def test_rejected_record_is_reported_by_its_line(command: Run, name: str) -> None:
    command("topic", "create", name, "-c", "max.message.bytes=1000")
    # Without batching, so that the small ones do not share the fate of the large.
    lone = ["-X", "batch.num.messages=1", "--no-idempotent"]
    outcome = command("produce", name, *lone, "--json", stdin=f"small\n{'x' * 5000}\nsmall\n")
    assert outcome.code == ExitCode.FAILED
    assert "stdin:2: " in outcome.err
    assert (outcome.json["records"], outcome.json["failed"]) == (2, 1)


def test_timed_out_record_is_reported_with_possible_causes(run: Run, name: str) -> None:
    run("topic", "create", name, "-c", "min.insync.replicas=2")
    outcome = run("produce", name, "--timeout", "1", stdin="x\n")
    assert outcome.code == ExitCode.FAILED
    assert "stdin:1: Local: Message timed out (_MSG_TIMED_OUT)" in outcome.err
    assert "fix: no broker accepted it in time" in outcome.err
    assert "its disk rejects writes" in outcome.err
    assert "left on its disk" not in outcome.err


def test_invalid_line_ends_the_input_after_the_records_before_it(run: Run, topic: str) -> None:
    outcome = run("produce", topic, "--format", "json", stdin='{"value": "ok"}\nbroken\n')
    assert outcome.code == ExitCode.FAILED
    assert "stdin: line 2: not JSON" in outcome.err
    assert run("consume", topic).out == "ok\n"


def test_a_partition_that_does_not_exist_is_refused(run: Run, topic: str) -> None:
    outcome = run("produce", topic, "-p", "9", stdin="x\n")
    assert outcome.code == ExitCode.FAILED
    assert "stdin:1" in outcome.err


def test_a_copy_by_json_keeps_every_part(command: Run, topic: str, name: str) -> None:
    lines = '{"key": "k", "value": "v", "headers": [["h", "1"], ["h", "2"]], "partition": 1}\n'
    command("produce", topic, "--format", "json", stdin=lines)
    source = command("consume", topic, "--json").out
    copy = f"{name}-copy"
    command("topic", "create", copy, "-p", "2")
    assert command("produce", copy, "--format", "json", stdin=source).code == ExitCode.OK
    assert command("consume", copy, "--json").out == source.replace(topic, copy)
