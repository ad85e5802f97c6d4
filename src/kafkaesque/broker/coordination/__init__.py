"""The coordination service on its socket: ZooKeeper's protocol over whatever replicates commands.

No rule of znodes or sessions lives here; those are in `kafkaesque.broker.coordination.rules`. `server.py` is the
way in, `replicated.py` the seam to consensus.
"""
