from __future__ import annotations

import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import Run, background, read_line
from tests.waiting import eventually

from kafkaesque.cli.failures import ExitCode


@pytest.fixture
def ten(run: Run, topic: str) -> str:
    """A topic with records 0 to 9 in partition 0, one a second from 1,000,000 ms."""
    lines = [
        f'{{"key": "k{n}", "value": "{n}", "timestamp": {1_000_000 + 1000 * n}, "partition": 0}}'
        for n in range(10)
    ]
    assert run("produce", topic, "--format", "json", stdin="\n".join(lines)).code == ExitCode.OK
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "0123456789"),
        (["--from", "7"], "789"),
        (["--from", "-2"], "89"),
        (["--from", "end"], ""),
        (["--from", "99"], ""),
        (["--from", "@1007500"], "89"),
        (["--from", "1970-01-01T00:16:48Z"], "89"),
        (["--to", "2"], "01"),
        (["--from", "@1003000", "--to", "@1005000"], "34"),
        (["-n", "3"], "012"),
        (["-n", "0"], ""),
        (["--partition", "1"], ""),
        (["--partition", "0", "--from", "8"], "89"),
        (["--from", "5", "--follow", "-n", "2"], "56"),
        (["--isolation", "read_uncommitted", "-n", "1"], "0"),
    ],
)
def test_start_and_stop_select_the_records(
    run: Run, ten: str, options: list[str], expected: str
) -> None:
    outcome = run("consume", ten, *options)
    assert outcome.code == ExitCode.OK, outcome.err
    assert outcome.out == "".join(f"{digit}\n" for digit in expected)


def test_keys_templates_and_delimiters(command: Run, ten: str) -> None:
    assert command("consume", ten, "-n", "1", "--key").out == "k0\t0\n"
    assert command("consume", ten, "-n", "2", "-D", ",").out == "0,1,"
    template = "%p/%o %k=%s %T\\n"
    assert command("consume", ten, "-n", "1", "--format", template).out == "0/0 k0=0 1000000\n"


def test_several_topics_are_read_together(run: Run, ten: str, name: str) -> None:
    other = f"{name}-other"
    run("topic", "create", other)
    run("produce", other, stdin="x\n")
    values = run("consume", ten, other).out.split()
    assert sorted(values) == sorted([*"0123456789", "x"])


def test_a_missing_topic_or_partition_is_an_error(run: Run, ten: str, name: str) -> None:
    assert run("consume", f"{name}-gone").code == ExitCode.NOT_FOUND
    outcome = run("consume", ten, "--partition", "7")
    assert outcome.code == ExitCode.FAILED
    assert "has no partition 7" in outcome.err


def test_group_continues_after_its_committed_offset(command: Run, ten: str, name: str) -> None:
    group = f"{name}-group"
    assert command("consume", ten, "--group", group, "-n", "4").out == "0\n1\n2\n3\n"
    assert command("consume", ten, "--group", group).out == "4\n5\n6\n7\n8\n9\n"
    assert command("consume", ten, "--group", group).out == ""
    (described,) = command("group", "describe", group, "--json").json["groups"]
    committed = {row["partition"]: row["committed"] for row in described["offsets"]}
    assert committed[0] == 10
    assert described["lag"] == 0


def test_new_group_can_start_at_the_end(run: Run, ten: str, name: str) -> None:
    assert run("consume", ten, "--group", f"{name}-late", "--from", "end").out == ""


def test_output_goes_to_a_file(run: Run, ten: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    outcome = run("consume", ten, "--json", "--output", str(file))
    assert (outcome.code, outcome.out) == (ExitCode.OK, "")
    assert len(file.read_text().splitlines()) == 10


def test_a_file_that_cannot_be_written_is_an_error(command: Run, ten: str, tmp_path: Path) -> None:
    outcome = command("consume", ten, "--output", str(tmp_path / "nowhere" / "file"))
    assert (outcome.code, outcome.out) == (ExitCode.FAILED, "")
    assert outcome.err.startswith("error: cannot write")
    assert "nowhere" in outcome.err
    full = command("consume", ten, "--output", "/dev/full")
    assert full.code == ExitCode.FAILED
    assert "cannot write to /dev/full: No space left on device" in full.err


def test_closed_pipe_ends_it_without_an_error(run: Run, topic: str, kafka: str) -> None:
    run("produce", topic, stdin="x" * 50 + "\n" + ("y" * 50 + "\n") * 20_000)
    with background(kafka, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        read_line(process)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == ExitCode.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_prints_new_records_until_interrupted(
    run: Run, topic: str, kafka: str, number: signal.Signals
) -> None:
    with background(kafka, "consume", topic, "-f") as process:
        for text in ("first\n", "second\n"):
            run("produce", topic, stdin=text)
            assert read_line(process) == text.encode()
        process.send_signal(number)
        assert process.wait(30) == ExitCode.INTERRUPTED


def test_aborted_transactions_are_skipped(run: Run, topic: str, kafka: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": name, "log_level": 0})
    producer.init_transactions(10)
    for value, finish in (("dropped", "abort"), ("kept", "commit")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(10)
        getattr(producer, f"{finish}_transaction")(10)
    # A commit returns before its markers are written: until then, the records are not readable.
    assert eventually(lambda: run("consume", topic).out) == "kept\n"
    assert run("consume", topic, "--isolation", "read_uncommitted").out == "dropped\nkept\n"
