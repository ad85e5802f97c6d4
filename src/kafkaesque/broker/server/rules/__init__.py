"""State of the Kafka listener that needs no I/O."""
