"""Kafkaesque: a distributed event-log platform. ARCHITECTURE.md says where everything lives."""

from kafkaesque import compiled

__version__ = "0.1.0"

BUILD = compiled.choose()
