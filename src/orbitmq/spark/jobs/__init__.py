"""Spark jobs: one module per question. Each returns a report; the command line prints it."""
