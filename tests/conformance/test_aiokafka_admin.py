"""aiokafka's own admin client, which uses the oldest versions of the admin requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError
from tests.conformance.conftest import Topics


async def administer(bootstrap: str, name: str) -> dict[str, Any]:
    """Creates, alters and deletes a topic, and returns the results of all calls."""
    seen: dict[str, Any] = {}
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        wanted = NewTopic(name, 2, 1, topic_configs={"retention.ms": "5000"})
        await admin.create_topics([wanted])
        with pytest.raises(TopicAlreadyExistsError):
            await _create_strictly(admin, wanted)
        seen["listed"] = name in await admin.list_topics()
        await admin.create_partitions({name: NewPartitions(3)})
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (described,) = await admin.describe_configs([resource])
        # Each entry of these old versions: name, value, read only, source, sensitive, synonyms.
        entries = {entry[0]: entry[1] for entry in described.resources[0][4]}
        seen["retention.ms"] = entries["retention.ms"]
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            for _ in range(5):
                await producer.send_and_wait(name, b"x", partition=0)
        finally:
            await producer.stop()
        partition = TopicPartition(name, 0)
        seen["low"] = await admin.delete_records({partition: RecordsToDelete(3)})
        seen["cluster"] = await admin.describe_cluster()
        (topic,) = await admin.describe_topics([name])
        seen["partitions"] = len(topic["partitions"])
        await admin.delete_topics([name])
    finally:
        await admin.close()
    return seen


async def _create_strictly(admin: AIOKafkaAdminClient, wanted: NewTopic) -> None:
    answer = await admin.create_topics([wanted])
    for _topic, code, _message in answer.topic_errors:
        if code == TopicAlreadyExistsError.errno:
            raise TopicAlreadyExistsError


def test_topic_is_created_and_deleted(bootstrap: str, topics: Topics) -> None:
    name = topics.name()
    seen = asyncio.run(administer(bootstrap, name))
    assert seen["listed"]
    assert seen["retention.ms"] == "5000"
    assert seen["low"] == {TopicPartition(name, 0): 3}
    assert seen["cluster"]["brokers"]
    assert seen["partitions"] == 3
