"""The checks of `kafkaesque doctor`: this machine and the network between it and a cluster.

`machine` checks versions, limits, the clock and a data directory; `network` checks addresses and ports.
Each check returns or yields a `service.finding.Finding`; `examination` runs them all.
"""
