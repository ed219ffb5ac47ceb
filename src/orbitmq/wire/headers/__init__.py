"""Typed header fields of requests and answers, one module per conversation."""
