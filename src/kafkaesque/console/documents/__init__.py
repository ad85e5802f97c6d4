"""The console's content as plain data: the API returns it as JSON, the pages render it as HTML."""
