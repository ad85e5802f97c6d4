"""The gateway: holds the connections of clients and passes messages between them and the log.

A connection (`client_connection`, in the `connection_registry`) hands its messages to `message_handler`. Commands
and requests go to the back ends through the log (`backend`); events come from the log through one reader per
topic (`topic_reader`, `subscriptions`). `handover` moves connections to a new process without a disconnect.
`rules` has no I/O. The guide is docs/GATEWAY.md.
"""
