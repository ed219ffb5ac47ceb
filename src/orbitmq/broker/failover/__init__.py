"""Who is the primary of a broker name, decided by the lease of a coordinator; no consensus of our own."""
