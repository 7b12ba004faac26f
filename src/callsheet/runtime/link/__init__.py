"""Connections between two processes of a run: one protocol, carried by shared memory or by the network.

A *listener* (the side that binds an endpoint) and its *links* (those that connect) exchange messages of a small
header and one block of raw arrays. Each side owns a few blocks; a block is in flight from its sending until the other
side gives it back. So what is in flight is bounded, and nothing is copied that need not be.
"""
