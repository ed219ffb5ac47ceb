"""Where a store's files lie and how they are read and written safely."""
