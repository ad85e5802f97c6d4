"""Tests that hold for our coordination server and for Apache ZooKeeper alike."""
