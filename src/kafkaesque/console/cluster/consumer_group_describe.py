"""ConsumerGroupDescribe, API key 69 (KIP-848): message tables for groups of the new protocol.

They are not in `wire.messages` because that package contains only what our own broker serves.
"""

from __future__ import annotations

from kafkaesque.wire.table import (
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String] = f("0+")
    include_authorized_operations: Bool = f("0+", default=False)


class TopicPartitions(Struct):
    topic_id: Uuid = f("0+")
    topic_name: String = f("0+")
    partitions: list[Int32] = f("0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = f("0+")


class Member(Struct):
    member_id: String = f("0+")
    instance_id: String | None = f("0+", nullable="0+", default=None)
    rack_id: String | None = f("0+", nullable="0+", default=None)
    member_epoch: Int32 = f("0+")
    client_id: String = f("0+")
    client_host: String = f("0+")
    subscribed_topic_names: list[String] = f("0+")
    subscribed_topic_regex: String | None = f("0+", nullable="0+", default=None)
    assignment: Assignment = f("0+")
    target_assignment: Assignment = f("0+")
    member_type: Int8 = f("1+", default=-1)


class DescribedConsumerGroup(Struct):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+", default=None)
    group_id: String = f("0+")
    group_state: String = f("0+")
    group_epoch: Int32 = f("0+")
    assignment_epoch: Int32 = f("0+")
    assignor_name: String = f("0+")
    members: list[Member] = f("0+")
    authorized_operations: Int32 = f("0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    groups: list[DescribedConsumerGroup] = f("0+")
