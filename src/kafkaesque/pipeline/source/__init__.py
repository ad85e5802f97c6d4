"""Reads topics as DataFrames, as a stream or a batch, with our own engine or Spark's connector."""
