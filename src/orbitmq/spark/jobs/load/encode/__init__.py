"""Columns of messages to records, by kernels: plain and compiled."""
