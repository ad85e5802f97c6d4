"""Real Kafka clients against one running broker: ours, or any Apache Kafka (`KAFKA=host:port`)."""
