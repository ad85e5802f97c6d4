"""A whole cluster on simulated time, network and disks, from one seed (docs/SIMULATION.md).

What runs is the product: Raft, replicas, logs, journal, producers' state, the controller's tables.
What is simulated is what lies around them. Nothing here is imported by what is simulated.
"""
