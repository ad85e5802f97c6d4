"""Two Kafka clients.

For services: `ports` defines a `Log`; `kafka` implements it over librdkafka for any Kafka (ours or
Apache's), `memory` in memory, for tests. A service takes a `Log` and works with either.

For requests that librdkafka lacks: `wire` has connections to single brokers.

Beside them, `gateway_liveness` reports the live gateways to services that read presence from the log.
"""
