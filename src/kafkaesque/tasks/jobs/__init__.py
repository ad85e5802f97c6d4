"""The three jobs of document 004 on the chat's events: notify, mail what stays unread, count."""
