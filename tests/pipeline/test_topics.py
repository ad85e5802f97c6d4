from __future__ import annotations

from confluent_kafka.admin import AdminClient

from kafkaesque.events.topics import SOCIAL_POSTS, TopicSpec
from kafkaesque.pipeline.topics import TRENDS, declared, ensure_topics


def test_topics_of_services_use_their_own_declaration() -> None:
    names = ["social.posts", "trends", "chat.events", "nobody's", "trends"]
    found = declared(names)
    assert [spec.name for spec in found] == ["social.posts", "trends", "chat.events"]
    assert found[0] is SOCIAL_POSTS


def test_missing_topics_are_created_once_as_declared(broker) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    spec = TopicSpec("made.once", 3, "k", "", {"retention.ms": "1000"})
    assert ensure_topics(kafka, [spec]) == ["made.once"]
    assert ensure_topics(kafka, [spec, TRENDS]) == ["trends"]
    topics = AdminClient(kafka).list_topics(timeout=10).topics
    assert len(topics["made.once"].partitions) == 3
    assert ensure_topics(kafka, []) == []
