"""Administration of a cluster over Kafka's protocol, and of a ZooKeeper tree, for the command line
and the console.

Works with any Kafka and any ZooKeeper. Does not use librdkafka, which lacks these requests or cannot
batch them.
"""
