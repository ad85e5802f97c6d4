"""Chat behind the gateways: accounts, messages, receipts, rooms; commands in, facts and events out.

Rules (no I/O, clock or chance): names, commands, facts, handovers, state, fold, outputs, decide and the
rule files it calls, answers, snapshot. Drivers: backend and what it builds. Also here: the clients that
people use, which know nothing of the back end but what stands in docs/CHAT.md.
"""
