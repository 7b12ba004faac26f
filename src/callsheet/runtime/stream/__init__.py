"""Items from one process to another: in order, each once, many small ones in one frame.

The sender's end of it is a *lane*; the receiver keeps a *ledger* of what it took from whom. Trajectories are lanes
into a reader that makes batches; other patterns can be laid on the same pieces.
"""
