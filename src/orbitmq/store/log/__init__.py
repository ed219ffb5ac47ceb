"""The commit log: segments, appends and flush."""
