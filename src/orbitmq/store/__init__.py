"""The live engine: commit log, consume queues, index, flush, recovery and cleaning. No sockets."""
