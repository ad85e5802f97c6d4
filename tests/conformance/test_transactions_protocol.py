"""Transactions on the wire: both flows, late messages, fencing and error codes.

`flow` 1 is the one of librdkafka, aiokafka and Java before 4; 2 is KIP-890's, which raises the epoch
with every transaction and has Produce itself add its partitions.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

import pytest
from tests.conformance import batches
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, produce
from tests.conformance.raw import Disconnected, RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.codec import decode_batch

TRANSACTIONAL = 0x10
OLD, NEW = 1, 2
READ_COMMITTED = 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
INVALID_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID_TIMEOUT = ErrorCode.INVALID_TRANSACTION_TIMEOUT
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
NONE = ErrorCode.NONE


def record(value: bytes) -> batches.Record:
    """A current timestamp, as markers have: records a week apart are in different segments, and a fetch
    returns one segment."""
    return batches.Record(b"k", value, int(time.time() * 1000))


class Producer:
    """A transactional producer that sends exactly the given requests."""

    def __init__(self, raw: RawClient, flow: int, name: str | None = None) -> None:
        self.raw, self.flow = raw, flow
        self.name = name or f"tx-{uuid.uuid4().hex}"
        self.id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, **known: int) -> int:
        """The error code, after retries while the coordinator loads or a transaction is completing."""

        def ask() -> int:
            (row,) = self.raw.call("find_coordinator", 4, key_type=1, coordinator_keys=[self.name])[
                "coordinators"
            ]
            assert row["error_code"] == NONE
            answer = self.raw.call(
                "init_producer_id",
                5,
                transactional_id=self.name,
                transaction_timeout=timeout_ms,
                **known,
            )
            assert answer["error_code"] not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                CONCURRENT,
            )
            if answer["error_code"] == NONE:
                self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
                self.sequences.clear()
            return int(answer["error_code"])

        return eventually_passes(ask)

    def add(self, topic: str, partition: int = 0, epoch: int | None = None) -> int:
        answer = self.raw.call(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
        )
        return int(
            answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0][
                "partition_error_code"
            ]
        )

    def begin(self, topic: str, partition: int = 0) -> None:
        """Preparation of the first batch: none, in the new flow."""
        if self.flow == OLD:
            eventually_passes(lambda: _is(self.add(topic, partition), NONE))

    def batch(self, *values: bytes, sequence: int, epoch: int | None = None) -> bytes:
        return batches.encode(
            [record(value) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )

    def produce(self, topic: str, batch: bytes, partition: int = 0) -> int:
        answer = self.raw.call(
            "produce",
            12 if self.flow == NEW else 10,
            transactional_id=self.name,
            acks=-1,
            timeout=10_000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
            ],
        )
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Begin if necessary, and write."""
        sequence = self.sequences.get((topic, partition), 0)
        self.begin(topic, partition)
        batch = self.batch(*values, sequence=sequence)
        eventually_passes(lambda: _is(self.produce(topic, batch, partition), NONE))
        self.sequences[topic, partition] = sequence + len(values)

    def end_once(self, *, commit: bool, epoch: int | None = None) -> dict[str, Any]:
        return self.raw.call(
            "end_txn",
            5 if self.flow == NEW else 3,
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> None:
        answer = self.end_once(commit=commit)
        assert answer["error_code"] == NONE
        if self.flow == NEW:
            assert (answer["producer_id"], answer["producer_epoch"]) == (self.id, self.epoch + 1)
            self.epoch += 1
            self.sequences.clear()

    def state(self) -> str:
        listed = self.raw.call("list_transactions", 0)["transaction_states"]
        (state,) = (
            one["transaction_state"] for one in listed if one["transactional_id"] == self.name
        )
        return str(state)

    def settle(self) -> None:
        """Wait for the markers."""
        eventually_passes(lambda: _is(self.state().startswith("Prepare"), False))


def _is(value: object, wanted: object) -> None:
    assert value == wanted


@pytest.fixture(params=[OLD, NEW], ids=["old flow", "new flow"])
def producer(request: pytest.FixtureRequest, raw: RawClient) -> Producer:
    made = Producer(raw, request.param)
    assert made.init() == NONE
    return made


@pytest.fixture
def old(raw: RawClient) -> Producer:
    made = Producer(raw, OLD)
    assert made.init() == NONE
    return made


@pytest.fixture
def new(raw: RawClient) -> Producer:
    made = Producer(raw, NEW)
    assert made.init() == NONE
    return made


def committed_values(raw: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """The records that a read_committed consumer returns, by the rules of KIP-98."""
    row = fetch(raw, topic, 0, partition=partition, isolation_level=READ_COMMITTED)
    assert row["error_code"] == NONE
    aborted = sorted(
        (one["first_offset"], one["producer_id"]) for one in row["aborted_transactions"]
    )
    skipping: set[int] = set()
    values = []
    for batch in batches.split(row["records"] or b""):
        header = batches.header(batch)
        while aborted and aborted[0][0] <= header.last_offset:
            skipping.add(aborted.pop(0)[1])
        if header.attributes & 0x20:
            skipping.discard(header.producer_id)
        elif header.producer_id not in skipping:
            values.append(batch)
    return [value for batch in values for value in _values(batch)]


def _values(batch: bytes) -> list[bytes]:
    return [record.value or b"" for record in decode_batch(batch)]


# -- visibility -----------------------------------------------------------------------------------


def test_committed_transaction_is_seen_and_aborted_one_is_not(
    raw: RawClient, producer: Producer, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    for number, commit in enumerate([True, False, True, False, True]):
        for partition in (0, 1):
            producer.send(topic, b"%d" % number, partition=partition)
        producer.end(commit=commit)
    producer.settle()
    for partition in (0, 1):
        assert committed_values(raw, topic, partition) == [b"0", b"2", b"4"]


def test_open_transaction_holds_back_readers_of_committed_ones_only(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    plain = batches.encode([record(b"plain")])
    produce_plain(raw, topic, plain)
    producer.send(topic, b"a", b"b")
    produce_plain(raw, topic, plain)
    row = fetch(raw, topic, 0, isolation_level=READ_COMMITTED)
    assert (row["high_watermark"], row["last_stable_offset"]) == (4, 1)
    assert [batches.header(one).base_offset for one in batches.split(row["records"])] == [0]
    beyond = fetch(raw, topic, 3, isolation_level=READ_COMMITTED)
    assert (beyond["error_code"], beyond["records"] or b"") == (NONE, b"")
    assert latest(raw, topic, READ_COMMITTED) == 1
    assert latest(raw, topic, 0) == 4
    producer.end(commit=False)
    producer.settle()
    assert latest(raw, topic, READ_COMMITTED) == 5
    assert committed_values(raw, topic) == [b"plain", b"plain"]


def test_aborted_range_is_returned_wherever_a_fetch_begins_in_it(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"a")
    producer.send(topic, b"b")
    producer.end(commit=False)
    producer.settle()
    for offset in (0, 1):
        row = fetch(raw, topic, offset, isolation_level=READ_COMMITTED)
        assert [
            (one["producer_id"], one["first_offset"]) for one in row["aborted_transactions"]
        ] == [(producer.id, 0)]
    assert fetch(raw, topic, 0)["aborted_transactions"] is None


def test_marker_is_a_control_batch_with_the_kind_and_the_coordinators_epoch(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    for commit in (True, False):
        producer.send(topic, b"a")
        producer.end(commit=commit)
        producer.settle()
    found = batches.split(fetch(raw, topic)["records"])
    for batch, kind in ((found[1], 1), (found[3], 0)):
        header = batches.header(batch)
        assert header.attributes & 0x30 == 0x30
        assert (header.producer_id, header.base_sequence) == (producer.id, -1)
        (record,) = decode_batch(batch)
        assert record.key == bytes([0, 0, 0, kind])
        assert len(record.value or b"") >= 6


# -- late messages ------------------------------------------------------------------------------------


def test_late_end_of_the_last_transaction_does_not_affect_the_next(
    raw: RawClient, new: Producer, topic: str
) -> None:
    first_epoch = new.epoch
    new.send(topic, b"a")
    new.end(commit=True)
    new.settle()
    new.send(topic, b"b")
    for commit in (True, False):
        assert new.end_once(commit=commit, epoch=first_epoch)["error_code"] == FENCED
    assert new.state() == "Ongoing"
    new.end(commit=True)
    new.settle()
    assert committed_values(raw, topic) == [b"a", b"b"]


def test_repeated_end_gets_the_same_answer(new: Producer, topic: str) -> None:
    new.send(topic, b"a")
    first = new.end_once(commit=True)
    assert first["error_code"] == NONE
    new.settle()
    again = new.end_once(commit=True)
    assert (again["error_code"], again["producer_epoch"]) == (NONE, first["producer_epoch"])
    assert new.end_once(commit=False)["error_code"] == INVALID_STATE


def test_late_batch_of_the_last_transaction_is_fenced(
    raw: RawClient, new: Producer, topic: str
) -> None:
    late = new.batch(b"late", sequence=1)
    new.send(topic, b"a")
    new.end(commit=False)
    new.settle()
    assert new.produce(topic, late) == INVALID_EPOCH
    new.send(topic, b"b")
    assert new.produce(topic, late) == INVALID_EPOCH
    new.end(commit=True)
    new.settle()
    assert committed_values(raw, topic) == [b"b"]


def test_late_batch_for_a_partition_that_never_had_one_is_fenced(
    raw: RawClient, new: Producer, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    late = new.batch(b"late", sequence=0)
    new.send(topic, b"a")
    new.end(commit=True)
    new.settle()
    assert new.produce(topic, late, partition=1) in (INVALID_EPOCH, FENCED)
    assert latest(raw, topic, 0, partition=1) == 0


def test_late_batch_finds_no_transaction_in_the_old_flow(
    raw: RawClient, old: Producer, topic: str
) -> None:
    """It was delayed until its transaction had ended: no transaction may hang."""
    old.send(topic, b"a")
    late = old.batch(b"late", sequence=1)
    old.end(commit=True)
    old.settle()
    assert old.produce(topic, late) == INVALID_STATE
    assert latest(raw, topic, READ_COMMITTED) == latest(raw, topic, 0) == 2


def test_batch_without_its_partition_added_is_refused_in_the_old_flow(
    raw: RawClient, old: Producer, topic: str
) -> None:
    assert old.produce(topic, old.batch(b"a", sequence=0)) == INVALID_STATE
    assert latest(raw, topic, 0) == 0


def test_late_add_of_an_older_epoch_is_fenced(new: Producer, topic: str) -> None:
    first_epoch = new.epoch
    new.send(topic, b"a")
    new.end(commit=True)
    new.settle()
    assert new.add(topic, epoch=first_epoch) == FENCED
    assert new.state() == "CompleteCommit"


def test_abort_without_a_transaction_raises_the_epoch(new: Producer, topic: str) -> None:
    new.end(commit=False)
    new.settle()
    new.send(topic, b"a")
    new.end(commit=True)
    assert new.end_once(commit=True)["error_code"] in (INVALID_STATE, CONCURRENT, FENCED)


# -- fencing ----------------------------------------------------------------------------------------


def test_new_producer_of_an_id_fences_the_old_one_and_aborts_its_transaction(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"zombie")
    successor = Producer(raw, producer.flow, producer.name)
    assert successor.init() == NONE
    assert successor.id == producer.id
    assert successor.epoch > producer.epoch
    assert producer.end_once(commit=True)["error_code"] == FENCED
    late = producer.batch(b"zombie", sequence=1)
    assert producer.produce(topic, late) == INVALID_EPOCH
    assert producer.add(topic) == FENCED
    successor.send(topic, b"a")
    successor.end(commit=True)
    successor.settle()
    assert committed_values(raw, topic) == [b"a"]


def test_producer_may_raise_its_own_epoch_but_a_zombie_may_not(
    raw: RawClient, old: Producer
) -> None:
    zombie = (old.id, old.epoch)
    assert old.init(producer_id=old.id, producer_epoch=old.epoch) == NONE
    assert old.epoch == zombie[1] + 1
    assert old.init(producer_id=old.id, producer_epoch=old.epoch) == NONE
    stranger = Producer(raw, OLD, old.name)
    assert stranger.init(producer_id=zombie[0], producer_epoch=zombie[1]) == FENCED


def test_transaction_that_takes_too_long_is_aborted(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    assert producer.init(timeout_ms=500) == NONE
    producer.send(topic, b"slow")
    eventually_passes(lambda: _is(producer.state(), "CompleteAbort"), within_s=30)
    assert latest(raw, topic, READ_COMMITTED) == 2
    assert producer.end_once(commit=True)["error_code"] in (FENCED, INVALID_STATE)
    assert committed_values(raw, topic) == []


# -- wrong requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_timeout_out_of_range_is_refused_before_the_coordinator_is_looked_up(
    raw: RawClient, timeout_ms: int
) -> None:
    name = f"tx-{uuid.uuid4().hex}"
    answer = raw.call("init_producer_id", 5, transactional_id=name, transaction_timeout=timeout_ms)
    assert answer["error_code"] == INVALID_TIMEOUT


def test_unknown_ids_and_wrong_epochs_get_their_codes(producer: Producer, topic: str) -> None:
    nobody = Producer(producer.raw, producer.flow)
    nobody.id, nobody.epoch = producer.id, producer.epoch
    producer.raw.call("find_coordinator", 4, key_type=1, coordinator_keys=[nobody.name])
    assert nobody.add(topic) == INVALID_MAPPING
    assert nobody.end_once(commit=True)["error_code"] == INVALID_MAPPING
    assert producer.add(topic, epoch=producer.epoch + 1) == FENCED
    assert producer.end_once(commit=True, epoch=producer.epoch + 1)["error_code"] == FENCED
    assert producer.end_once(commit=True)["error_code"] == INVALID_STATE
    producer.id += 1_000_000
    assert producer.add(topic) == INVALID_MAPPING
    assert producer.end_once(commit=True)["error_code"] == INVALID_MAPPING


def test_unknown_partition_rejects_the_whole_request(old: Producer, topic: str) -> None:
    answer = old.raw.call(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=old.name,
        v3_and_below_producer_id=old.id,
        v3_and_below_producer_epoch=old.epoch,
        v3_and_below_topics=[{"name": topic, "partitions": [0, 7]}],
    )
    rows = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
    assert {row["partition_index"]: row["partition_error_code"] for row in rows} == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert old.state() == "Empty"


def test_repeated_end_in_the_old_flow_succeeds_and_the_opposite_end_does_not(
    old: Producer, topic: str
) -> None:
    old.send(topic, b"a")
    old.end(commit=True)
    old.settle()
    old.end(commit=True)
    assert old.end_once(commit=False)["error_code"] == INVALID_STATE


def test_first_batch_of_a_transaction_must_not_skip_a_sequence(new: Producer, topic: str) -> None:
    new.send(topic, b"a")
    new.end(commit=True)
    new.settle()
    assert new.produce(topic, new.batch(b"c", sequence=1)) == OUT_OF_ORDER


# -- offsets ------------------------------------------------------------------------------------------


def commit_offset(producer: Producer, group: str, topic: str, offset: int, **member: Any) -> int:
    answer = producer.raw.call(
        "txn_offset_commit",
        5 if producer.flow == NEW else 3,
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": offset,
                        "committed_metadata": "m",
                    }
                ],
            }
        ],
        **({"generation_id": -1, "member_id": ""} | member),
    )
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def add_offsets(producer: Producer, group: str) -> int:
    return int(
        producer.raw.call(
            "add_offsets_to_txn",
            3,
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group,
        )["error_code"]
    )


def offset_of(
    raw: RawClient, group: str, topic: str, *, require_stable: bool = False
) -> tuple[int, int]:
    """(error code, offset)"""
    answer = raw.call(
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=require_stable,
    )
    row = answer["topics"][0]["partitions"][0]
    return row["error_code"], row["committed_offset"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_of_a_transaction_count_when_it_commits(
    raw: RawClient, producer: Producer, topic: str, group: str, commit: bool
) -> None:
    if producer.flow == OLD:
        assert commit_offset(producer, group, topic, 5) == INVALID_STATE
        eventually_passes(lambda: _is(add_offsets(producer, group), NONE))
    eventually_passes(lambda: _is(commit_offset(producer, group, topic, 5), NONE))
    assert offset_of(raw, group, topic) == (NONE, -1)
    assert offset_of(raw, group, topic, require_stable=True) == (UNSTABLE, -1)
    producer.end(commit=commit)
    producer.settle()
    wanted = (NONE, 5 if commit else -1)
    eventually_passes(lambda: _is(offset_of(raw, group, topic, require_stable=True), wanted))
    assert offset_of(raw, group, topic) == wanted


def test_offsets_of_an_unknown_member_are_refused(
    producer: Producer, topic: str, group: str
) -> None:
    if producer.flow == OLD:
        eventually_passes(lambda: _is(add_offsets(producer, group), NONE))
    code = commit_offset(producer, group, topic, 5, generation_id=3, member_id="nobody")
    assert code == ErrorCode.ILLEGAL_GENERATION
    producer.end(commit=False)


# -- operators ----------------------------------------------------------------------------------------


def test_transactions_and_producers_are_described(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"a")
    (row,) = raw.call("describe_transactions", 0, transactional_ids=[producer.name])[
        "transaction_states"
    ]
    assert (row["transaction_state"], row["producer_id"], row["producer_epoch"]) == (
        "Ongoing",
        producer.id,
        producer.epoch,
    )
    assert row["topics"] == [{"topic": topic, "partitions": [0]}]
    listed = raw.call(
        "list_transactions",
        1,
        state_filters=["Ongoing", "Nonsense"],
        producer_id_filters=[producer.id],
    )
    assert listed["unknown_state_filters"] == ["Nonsense"]
    assert [one["transactional_id"] for one in listed["transaction_states"]] == [producer.name]
    assert described_producer(raw, topic)["current_txn_start_offset"] == 0
    producer.end(commit=True)
    producer.settle()
    found = described_producer(raw, topic)
    assert (found["producer_id"], found["current_txn_start_offset"]) == (producer.id, -1)


def test_hanging_transaction_is_aborted_by_a_marker(
    raw: RawClient, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"a")
    found = described_producer(raw, topic)
    answer = raw.call(
        "write_txn_markers",
        1,
        markers=[
            {
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "transaction_result": False,
                "topics": [{"name": topic, "partition_indexes": [0]}],
                "coordinator_epoch": max(found["coordinator_epoch"], 0),
            }
        ],
    )
    assert answer["markers"][0]["topics"][0]["partitions"][0]["error_code"] == NONE
    eventually_passes(lambda: _is(latest(raw, topic, READ_COMMITTED), 2))
    assert committed_values(raw, topic) == []
    producer.end(commit=False)


def test_marker_of_an_older_epoch_is_refused(raw: RawClient, new: Producer, topic: str) -> None:
    old_epoch = new.epoch
    new.send(topic, b"a")
    new.end(commit=True)
    new.settle()
    new.send(topic, b"b")
    answer = raw.call(
        "write_txn_markers",
        1,
        markers=[
            {
                "producer_id": new.id,
                "producer_epoch": old_epoch,
                "transaction_result": False,
                "topics": [{"name": topic, "partition_indexes": [0]}],
                "coordinator_epoch": 1_000,
            }
        ],
    )
    assert answer["markers"][0]["topics"][0]["partitions"][0]["error_code"] == INVALID_EPOCH
    new.end(commit=True)
    new.settle()
    assert committed_values(raw, topic) == [b"a", b"b"]


def described_producer(raw: RawClient, topic: str) -> dict[str, Any]:
    answer = raw.call("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
    (row,) = answer["topics"][0]["partitions"][0]["active_producers"]
    found: dict[str, Any] = row
    return found


def latest(raw: RawClient, topic: str, isolation_level: int, partition: int = 0) -> int:
    answer = raw.call(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}],
    )
    return int(answer["topics"][0]["partitions"][0]["offset"])


def produce_plain(raw: RawClient, topic: str, batch: bytes) -> None:
    assert produce(raw, topic, batch)["error_code"] == NONE


# -- late messages of the old flow: where we do more than Apache Kafka ------------------------------------


ours = pytest.mark.skipif(
    bool(os.environ.get("KAFKA")), reason="Apache Kafka has no cure for this: run without KAFKA"
)


@ours
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_delayed_end_does_not_affect_the_next_transaction_of_the_old_flow(
    bootstrap: str, old: Producer, topic: str, commit: bool
) -> None:
    """The client gave up on the connection, retried over another one, and continued."""
    old.send(topic, b"a")
    with RawClient(bootstrap) as second:
        gave_up, old.raw = old.raw, second
        old.end(commit=True)
        old.settle()
        old.send(topic, b"b")
        late = Producer(gave_up, OLD, old.name)
        late.id, late.epoch = old.id, old.epoch
        with pytest.raises(Disconnected):
            late.end_once(commit=commit)
        assert old.state() == "Ongoing"
        old.end(commit=True)
        old.settle()
        assert committed_values(second, topic) == [b"a", b"b"]


@ours
def test_delayed_partition_begins_no_transaction_of_the_old_flow(
    bootstrap: str, old: Producer, topic: str
) -> None:
    old.send(topic, b"a")
    with RawClient(bootstrap) as second:
        gave_up, old.raw = old.raw, second
        old.end(commit=True)
        old.settle()
        late = Producer(gave_up, OLD, old.name)
        late.id, late.epoch = old.id, old.epoch
        with pytest.raises(Disconnected):
            late.add(topic)
        assert old.state() == "CompleteCommit"


@ours
def test_delayed_batch_is_not_in_the_next_transaction_of_the_old_flow(
    bootstrap: str, old: Producer, topic: str
) -> None:
    """A batch of an aborted transaction, with the sequence number that the partition expects."""
    old.send(topic, b"a")
    with RawClient(bootstrap) as second:
        gave_up, old.raw = old.raw, second
        old.send(topic, b"b")
        old.end(commit=False)
        old.settle()
        old.send(topic, b"c")
        late = Producer(gave_up, OLD, old.name)
        next_sequence = old.sequences[topic, 0]
        with pytest.raises(Disconnected):
            late.produce(topic, old.batch(b"late", sequence=next_sequence))
        old.end(commit=True)
        old.settle()
        assert committed_values(second, topic) == [b"c"]
