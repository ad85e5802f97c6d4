"""A whole cluster on simulated time, network and disks, from one seed (docs/SIMULATION.md).

The product's own code runs: Raft, replicas, logs, journal, producers' state, the controller's tables.
Only its surroundings (time, network, disks, clients) are simulated. The product imports nothing from here.
"""
