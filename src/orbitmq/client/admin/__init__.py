"""Admin: `AsyncAdmin` joins topics, groups, offsets, messages and brokers; `results` is what it returns."""
