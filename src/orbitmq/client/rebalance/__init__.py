"""What a rebalance cost: as a member counts it itself, and as an observer sees it from outside.

report    what a member notes of queues that it took and gave up; what its `on_rebalance` is called with
sample    one look at a group: who is there, who reads what, how far the queues are
watch     from samples to rebalances: which queues moved, how long nobody read them, what came twice
"""
