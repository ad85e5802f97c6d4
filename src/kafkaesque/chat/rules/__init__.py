"""Rules of chat, without I/O, clock or randomness.

`commands` and `handovers` are the inputs. `decide_command`, `decide_handover`, `decide_room` and
`answer_query` turn an input and the current state into `outputs`. `fold` applies the `facts` among them
to the `state`; `snapshot` stores it. `names` holds all limits.
"""
