"""Logs of a server: where lines go, what they look like, what never stands in one."""
