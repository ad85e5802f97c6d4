"""The transaction coordinator as state machines: KIP-98, KIP-360, KIP-447 and KIP-890.

Rules only. The open transactions of a partition are in `broker/partitions/rules/open_transactions.py`;
`broker/partitions/transaction_coordinator.py` appends, waits and sends.
"""
