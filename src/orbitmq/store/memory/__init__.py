"""Topics in memory only: records in chunks, a limit, and offsets that never go back (ADR 0015)."""
