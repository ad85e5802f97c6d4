"""The Kafka side of the console: queries, admin requests, and the sampler."""
