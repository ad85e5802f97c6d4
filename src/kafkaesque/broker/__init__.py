"""The network edge of a node: sockets in, handlers behind them, and the root that builds it all.

A request goes `connection` > `dispatch` > one file of `handlers` > the packages below, and its
answer comes back as the returned value.
"""
