"""The cluster as the console sees it: asked by Kafka's protocol, kept as a view and its history."""
