"""Compare queues and index with the log."""
