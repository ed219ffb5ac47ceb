"""The command `orbitmq demo`."""
