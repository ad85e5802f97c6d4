"""The transaction coordinator as state machines: KIP-98, KIP-360, KIP-447 and KIP-890.

Rules only. What a partition itself must know of transactions is `broker/partitions/rules/open_transactions.py`;
who appends, waits and sends is `broker/partitions/transaction_coordinator.py`.
"""
