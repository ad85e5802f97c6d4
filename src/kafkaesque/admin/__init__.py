"""Operating a cluster and a ZooKeeper tree: what the command line and the console do and show.

Works with any Kafka and any ZooKeeper. `connection` uses librdkafka; `cluster` (blocking) and `requests`
(asyncio) send the requests that librdkafka lacks or cannot batch. Operations return rows: dicts with the
JSON fields that commands and pages print. Errors are AdminError.
"""

from typing import Final

CLIENT_ID: Final = "kafkaesque-cli"
"""`client.id` of all requests, for the brokers' logs and quotas."""
