"""Formats of bodies that Spark's own expressions do not know, decoded in Python workers.

Each module has a `kind` (the Spark type of a schema) and a `decoder` (bytes to a plain value). Both need the
extra `orbitmq[bodies]`, on the driver and on executors.
"""
