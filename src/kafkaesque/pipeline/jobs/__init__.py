"""What is computed: functions DataFrame to DataFrame, the same for stream and batch.

No session, no source, no sink and no clock in here; built-in functions of Spark only, no UDF.
"""
