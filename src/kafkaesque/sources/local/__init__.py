"""A local server of synthetic posts: Jetstream, Mastodon and X on one port, from one generator.

`rules/` is pure: the timeline, and the networks' formats. `feed` adds the clock, `connections` the
clients and faults, `server` the routes.
"""
