"""The Kafka client of the Python engine: blocking sockets, Fetch, record batches to Arrow. No Spark."""
