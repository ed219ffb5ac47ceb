"""A send: its rules, its answer, the wait for the disk."""
