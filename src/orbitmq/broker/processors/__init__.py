"""Processors: each answers a family of request codes. Plain functions of the event loop, never waiting."""
