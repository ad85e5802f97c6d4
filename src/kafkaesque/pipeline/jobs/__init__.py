"""The transformations: functions from DataFrame to DataFrame, the same for streams and batches.

They use no session, source, sink or clock, and only Spark's built-in functions: no Python UDF.
"""
