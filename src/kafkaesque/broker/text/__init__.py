"""The text protocol: a line-based socket to publish to and consume from the cluster."""
