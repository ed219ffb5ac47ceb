"""Consume queues of all kinds: queue offset -> record."""
