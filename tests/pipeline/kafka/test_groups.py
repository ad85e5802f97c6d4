from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from kafkaesque.pipeline.kafka.cluster import ClusterClient
from kafkaesque.pipeline.kafka.groups import GroupOffsets
from kafkaesque.pipeline.source.options import read_cluster


def test_offsets_are_committed_without_being_a_member(broker, topic) -> None:
    cluster = ClusterClient(read_cluster({"bootstrap.servers": broker.bootstrap_servers}))
    group = GroupOffsets(cluster, "pipeline.test")
    group.commit({(topic, 0): 5, (topic, 1): 7}, "batch 3")
    group.commit({(topic, 0): 6}, "batch 4")
    group.commit({}, "nothing")
    cluster.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = ConsumerGroupTopicPartitions("pipeline.test")
    found = admin.list_consumer_group_offsets([wanted])["pipeline.test"].result()
    assert {item.partition: item.offset for item in found.topic_partitions} == {0: 6, 1: 7}
