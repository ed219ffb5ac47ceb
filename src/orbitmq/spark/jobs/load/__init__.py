"""A table becomes a store: records by tasks, places by the driver, queues and index by a rebuild."""
