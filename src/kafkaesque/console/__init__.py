"""The web console: live state of a whole cluster, and an operator's actions on it.

It uses network interfaces only: Kafka's protocol, the /metrics pages of brokers and services, and
ZooKeeper's protocol for coordination. It works with Apache Kafka too; pages for features that Apache
Kafka does not have are then hidden.

- `rules`: decisions without I/O (lag, health, events, filters, history)
- `decoding`: bytes of keys and values to readable data
- `cluster`, `messages`, `services`: clients for brokers, records, and the services around them
- `documents`: the JSON objects that the API returns and the pages render
- `web`: HTTP server, pages, API, access control
"""
