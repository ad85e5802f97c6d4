"""Data from beyond the brokers' Kafka ports: metrics, coordination, Spark queries, processes."""
