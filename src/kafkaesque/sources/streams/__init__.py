"""Connections to the networks. Each stream connects once and yields frames; reconnecting is in
`reconnect`, parsing and resuming in `rules`."""
