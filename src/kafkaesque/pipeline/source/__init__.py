"""From a topic to a DataFrame: options, offsets, the two engines. No transformation of rows."""
