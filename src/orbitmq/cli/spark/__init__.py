"""The commands `orbitmq spark ...`."""
