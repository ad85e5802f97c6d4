"""From a DataFrame to a table or a topic, each batch once. No transformation of rows."""
