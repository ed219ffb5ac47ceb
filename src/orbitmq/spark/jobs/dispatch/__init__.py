"""Dispatch for a running broker, as a stream."""
