"""Streams of items from one process to another: in order, exactly once, with small items packed into shared frames.

A *sender* packs and sends them; the receiver records in a *delivery log* what it got from whom. Trajectories and the
replay's inserts are streams.
"""
