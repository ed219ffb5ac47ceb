"""Bytes on the network and the commands that they mean. No socket, no waiting: any I/O can drive it."""
