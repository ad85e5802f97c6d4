"""Kafka's wire format: bytes in, values out, and back.

No socket, clock, thread or file in this package. Whatever a peer sends, its parsers raise
`model.errors.ProtocolError` and nothing else.
"""
