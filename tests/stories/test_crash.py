"""kill -9: acknowledged records survive unchanged."""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.stories.conftest import StartBroker
from tests.stories.wire_client import WireClient

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.broker_process import BrokerProcess


def test_acknowledged_records_survive_kill_9_in_the_middle_of_traffic(
    broker: BrokerProcess,
) -> None:
    acknowledged: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t", partitions=2, segment_bytes=20_000)
    enough = threading.Event()

    def produce(partition: int) -> None:
        try:
            with WireClient(broker.bootstrap_servers) as client:
                for number in range(100_000):
                    values = [b"%d-%d-%d" % (partition, number, i) for i in range(5)]
                    row = client.produce("t", values, partition=partition)
                    assert row.error_code == ErrorCode.NONE
                    acknowledged[partition] += enumerate(values, row.base_offset)
                    if number == 150:
                        enough.set()
        except ConnectionError:
            return

    threads = [threading.Thread(target=produce, args=(partition,)) for partition in (0, 1)]
    for thread in threads:
        thread.start()
    assert enough.wait(60)
    broker.kill()
    for thread in threads:
        thread.join()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        for partition, expected in acknowledged.items():
            found = client.read_all("t", partition)
            assert [record.offset for record in found] == list(range(len(found)))
            kept = {int(record.offset): record.value for record in found}
            assert [(offset, kept.get(offset)) for offset, _ in expected] == expected


def test_torn_tail_is_truncated_and_the_log_stays_usable(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        client.produce("t", [b"kept"])
    broker.kill()
    segment = only_segment(broker)
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[:40])
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert client.produce("t", [b"next"]).base_offset == 1
        assert [record.value for record in client.read_all("t")] == [b"kept", b"next"]


def test_consumer_group_resumes_at_its_committed_offset_after_a_crash(
    broker: BrokerProcess,
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", str(number))
    assert producer.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    assert [m.value() for m in consumer.consume(4, 20)] == [b"0", b"1", b"2", b"3"]
    consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    broker.kill()
    broker.start()
    # The running member continues to heartbeat: its group and members were restored from the log.
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"4"
    assert consumer.committed([TopicPartition("t", 0)], 10)[0].offset == 4
    consumer.close()


def test_idempotent_retry_after_a_crash_finds_its_first_append(broker: BrokerProcess) -> None:
    """The five-batch window is restored from the log."""
    from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
    from kafkaesque.records.codec import Record, encode_batch
    from kafkaesque.wire.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
    )

    def send(client: WireClient, sequence: int) -> tuple[int, int]:
        batch = encode_batch(
            [Record(Offset(0), TimestampMs(1), None, b"%d" % sequence)],
            producer_id=ProducerId(77),
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=0, records=memoryview(batch))
        topic = TopicProduceData(name="t", partition_data=[data])
        answer = client.call(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[topic]), 9)
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        assert [send(client, number) for number in range(7)] == [(0, n) for n in range(7)]
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert [send(client, number) for number in range(2, 7)] == [(0, n) for n in range(2, 7)]
        assert send(client, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, 7) == (0, 7)


def test_clean_stop_leaves_nothing_to_recover(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        client.produce("t", [b"x"] * 100)
    assert broker.stop() == 0
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert len(client.read_all("t")) == 100
    assert "not clean" not in broker.log.read_text()
    broker.kill()
    broker.start()
    assert "not clean" in broker.log.read_text()


def only_segment(broker: BrokerProcess) -> Path:
    """The segment of the one partition that has data."""
    segments = [p for p in broker.data.glob("topics/*/*/*.log") if p.stat().st_size]
    assert len(segments) == 1
    return segments[0]
