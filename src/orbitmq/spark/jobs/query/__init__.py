"""Search and SQL over a log and a lake as one table (`orbitmq spark query`)."""
