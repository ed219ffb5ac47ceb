"""Selections that need no scan: index, queues and times lead to the records."""
