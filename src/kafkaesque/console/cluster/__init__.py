"""The Kafka side of the console: connections, queries, admin requests, and the sampler."""
