"""Kafkaesque: a distributed event-log platform. ARCHITECTURE.md says where everything lives."""

__version__ = "0.1.0"
