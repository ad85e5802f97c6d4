"""Rules of the gateway, without I/O: handshake, session, fan-out, tokens, users, routes, draining."""
