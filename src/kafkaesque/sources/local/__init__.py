"""A social network on this machine: Jetstream, Mastodon and X on one port, from one generator.

`timeline` and `wires` are pure; `feed` adds the clock, `server` the sockets.
"""
