"""The terminal chat client: session with a gateway, view of the conversations, screen and keyboard.

The client depends on the edge protocol and the commands and events in docs/CHAT.md, and on no back-end
code except the naming rules.
"""
