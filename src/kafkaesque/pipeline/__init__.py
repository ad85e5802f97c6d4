"""The data pipeline: Spark, through PySpark, over the log. Knows Kafka only as bytes on a socket.

Data goes `source/` (rows of a topic, two engines) > `jobs/` (DataFrame to DataFrame) > `sinks/`
(tables and topics, exactly once), run by `operate/`. `kafka/` is the small client of the Python
engine. Nothing here imports the broker; nothing imports pyspark before a session is asked for.
"""
