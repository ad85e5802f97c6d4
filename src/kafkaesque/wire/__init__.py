"""Kafka's wire format: encodes and decodes messages and frames.

This package uses no socket, clock, thread or file. On any malformed input its parsers raise
`model.errors.ProtocolError` and nothing else.
"""
