"""The harness that kills the pipeline's Spark driver and then checks every sink against the log.

`driver.py` is the program that is killed, `kills.py` starts and kills it, `sinks.py` compares the
sinks with the log. Used by the fault run `pipeline-driver-kill` and by tests/pipeline.
"""
