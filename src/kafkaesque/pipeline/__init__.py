"""The data pipeline: Spark Structured Streaming, through PySpark, over the log.

Records flow from `source/` (rows of a topic, two engines) through `jobs/` (DataFrame to DataFrame)
into `sinks/` (tables and topics, exactly once); `operate/` runs the queries. `kafka/` is the small
Kafka client of the Python engine. Nothing here imports the broker, and pyspark is imported only when
a session is needed.
"""
