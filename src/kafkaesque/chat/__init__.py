"""Chat: accounts, messages, receipts and rooms, as an event-sourced service behind the gateways.

`rules/` decides (command + state -> facts, events, hand-overs) and folds facts into state, without I/O.
`backend` runs the rules over the log: `assignment` takes, restores and releases partitions, `partition`
turns one input record into output records, `global_tables` holds names and presence of all partitions.
`translator` serves clients of later application versions. `client/` is the terminal client, `web/` the
page that `web_server` serves. docs/CHAT.md describes commands, events, topics and guarantees.
"""
