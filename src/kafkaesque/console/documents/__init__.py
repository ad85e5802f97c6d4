"""What is shown, as plain data: the JSON API answers it, the pages draw it, nothing else knows it."""
