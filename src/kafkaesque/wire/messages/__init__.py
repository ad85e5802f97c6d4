"""One module per API: the table of its request and its response, and nothing else.

Printed by `tools/schema_tables.py` from the schemas of Kafka 4.3, then looked over. Rules about
what the fields mean live with the handlers.
"""
