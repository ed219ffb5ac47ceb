"""Copies of the log on other brokers: a primary's port for replicas, and a replica that follows a primary."""
