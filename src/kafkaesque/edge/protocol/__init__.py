"""The protocol between clients and gateways, without I/O: frames, messages, positions."""
