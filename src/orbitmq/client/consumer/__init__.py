"""Consumers: rebalance, fetch, consume, offsets."""
