"""The Kafka client inside the Python engine: blocking sockets, Fetch, batches to Arrow. No Spark."""
