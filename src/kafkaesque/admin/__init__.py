"""What operators do to a cluster over Kafka's protocol, for the command line and the console.

Works with any Kafka. Uses librdkafka for nothing: these requests it lacks or cannot batch.
"""
