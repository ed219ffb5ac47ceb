"""Make queues and index anew from the log."""
