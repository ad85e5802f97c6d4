"""Rules of the gateway, without I/O: sessions, routes, pacing and rate limits."""
