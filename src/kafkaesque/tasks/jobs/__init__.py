"""Three jobs on the chat's events: notify the recipient, mail what stays unread, count the stages."""
