"""The text protocol's driver: a line socket in front of the cluster that this broker belongs to."""
