"""Index files: key -> records."""
