"""What stands around the log: metrics pages, coordination, the pipeline's files, trends, processes."""
