"""Upper bounds of everything that a peer can make grow, and how they relate.

A bound that an operator may tune is a broker setting; its hard maximum or default is defined here.
"""

from __future__ import annotations

from kafkaesque.model.errors import check

KIB = 1024
MIB = 1024 * KIB

REQUEST_SIZE_BYTES_DEFAULT = 100 * MIB
"""`socket.request.max.bytes` as in Kafka: a Produce request may carry many batches."""

REQUEST_SIZE_BYTES_BEFORE_FIRST_ANSWER = 512 * KIB
"""Largest frame before the first response on a connection (like Kafka's
`sasl.server.max.receive.size`): an unknown client cannot make the broker buffer 100 MiB."""

CONNECTIONS_DEFAULT = 20_000
"""`max.connections`: an idle one costs about 6 KiB and a descriptor. Twice what `bench idle` opens."""

CONNECTIONS_MIN = 2
"""Minimum of the settings that limit connections. Java's AdminClient needs two to one broker: one to
bootstrap and one to the broker's id. With fewer, no administrator could raise the limit again."""

TAGGED_FIELDS_MAX = 64
"""Tagged fields in one struct. The protocol defines at most 4 in any message. A frame full of
two-byte tags would block the event loop for a second (the attack of CVE-2026-111115)."""

ARRAY_ELEMENTS_MAX = 100_000
"""Elements decoded from one message, over all its arrays. Bounds parsing at about 0.1 s for any
input."""

BATCH_SIZE_BYTES_MAX = 64 * MIB
"""No setting may raise `max.message.bytes` above this."""

TOPIC_NAME_LENGTH_MAX = 249
GROUP_ID_LENGTH_MAX = 32_767
OFFSET_METADATA_LENGTH_MAX = 4096

RECORDS_DECOMPRESSED_BYTES_MAX = 64 * MIB
"""Largest decompressed size of a batch that the broker has to decode."""

FETCH_SESSIONS_MAX = 1000
"""`max.incremental.fetch.session.cache.slots` as in Kafka."""

FETCH_RESPONSE_BYTES_MAX = 55 * MIB
"""`fetch.max.bytes` of the broker as in Kafka (57671680)."""

check(REQUEST_SIZE_BYTES_BEFORE_FIRST_ANSWER < REQUEST_SIZE_BYTES_DEFAULT, "frame limits")
check(BATCH_SIZE_BYTES_MAX <= REQUEST_SIZE_BYTES_DEFAULT, "a legal batch must fit in a request")
