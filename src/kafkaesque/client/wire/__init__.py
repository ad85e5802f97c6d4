"""Connections to single brokers over Kafka's protocol, without librdkafka.

For requests that librdkafka lacks, hides behind retries or cannot batch, and for the pipeline's
fetches. `protocol` and `sasl` do no I/O; `blocking` and `asyncio_connection` move their bytes over a
socket; `pool` keeps one asyncio connection per broker of a cluster.
"""
