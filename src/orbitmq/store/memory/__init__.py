"""Topics in memory only: records in slabs, a limit, and offsets that never go back (ADR 0015)."""
