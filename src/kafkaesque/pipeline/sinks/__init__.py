"""Writes the rows of a batch to a Delta table or a topic, safe to repeat. Rows are not transformed."""
