"""Admin: topics, groups, offsets, messages of a cluster."""
